// SPDX-License-Identifier: Apache-2.0
// Shared memory between real processes, some of which are killed.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "transport/contract.h"
#include "transport/shm_side.h"

namespace braid::testing {
namespace {

void write_line(int socket, const std::string& line) {
  const std::string text = line + "\n";
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) ::_exit(3);
}

std::string read_line(int socket) {
  std::string line;
  for (char c = 0; ::read(socket, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

// What a bootstrap does: endpoints, then verdicts.
Status rendezvous(ShmSide& side, int socket) {
  const Node peer = 1 - side.rank;
  write_line(socket, side.group->endpoint());
  const std::string endpoint = read_line(socket);
  side.group->permit({endpoint});
  write_line(socket, "permitted");
  (void)read_line(socket);
  if (Status status = side.group->connect(peer, endpoint); !status.ok()) return status;
  write_line(socket, side.group->can_read(peer) ? "reads" : "connected");
  side.attach(peer, read_line(socket) == "reads");
  return {};
}

// Rank 1 of a group of two, in a process of its own. `body` ends it with its exit code; after that it sleeps until
// it is killed.
class ChildRank {
 public:
  explicit ChildRank(const std::function<bool(ShmSide&)>& body, const ShmOptions& options = {}) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ShmSide child(1, 2, options);
      const bool well = rendezvous(child, ends[1]).ok() && body(child);
      write_line(ends[1], well ? "done" : "failed");
      for (;;) ::pause();
    }
    ::close(ends[1]);
    socket_ = ends[0];
    parent_ = std::make_unique<ShmSide>(0, 2, options);
    const Status status = rendezvous(*parent_, socket_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~ChildRank() {
    kill();
    ::close(socket_);
  }

  ShmSide& parent() { return *parent_; }
  bool body_ended_well() { return read_line(socket_) == "done"; }
  pid_t pid() const { return pid_; }
  void kill() {
    if (std::exchange(killed_, true)) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  bool killed_ = false;
  std::unique_ptr<ShmSide> parent_;
};

std::set<std::string> files_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
  return names;
}

class ShmProcessTest : public ::testing::TestWithParam<bool> {
 protected:
  ShmOptions options() const {
    ShmOptions chosen;
    chosen.single_copy = GetParam();
    return chosen;
  }
};

INSTANTIATE_TEST_SUITE_P(Shm, ShmProcessTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "single_copy" : "pieces"; });

const std::vector<size_t> kMessageSizes = {0, 1, 8, 4097, 100'003, (4 << 20) + 3};

TEST_P(ShmProcessTest, MessagesGoBothWays) {
  ChildRank child(
      [](ShmSide& side) {
        for (uint64_t i = 0; i < kMessageSizes.size(); ++i) {
          std::vector<std::byte> data(kMessageSizes[i]);
          if (!side.recv(0, {i, 0}, data).ok() || data != pattern(data.size(), i)) return false;
          if (!side.send(0, {i, 1}, pattern(data.size(), i + 100)).ok()) return false;
        }
        return true;
      },
      options());
  EXPECT_EQ(child.parent().group->can_read(1), GetParam());
  for (uint64_t i = 0; i < kMessageSizes.size(); ++i) {
    std::vector<std::byte> got(kMessageSizes[i]);
    EXPECT_TRUE(child.parent().send(1, {i, 0}, pattern(kMessageSizes[i], i)).ok());
    const Status status = child.parent().recv(1, {i, 1}, got);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(got, pattern(kMessageSizes[i], i + 100));
  }
  EXPECT_TRUE(child.body_ended_well());
}

TEST_P(ShmProcessTest, AKilledPeerIsSeenAfterWhatItHadSent) {
  const auto names = files_in_dev_shm();
  {
    ChildRank child(
        [](ShmSide& side) {
          for (uint64_t i = 0; i < 10; ++i) {
            if (!side.send(0, {i, 0}, pattern(500, i)).ok()) return false;
          }
          return true;
        },
        options());
    ASSERT_TRUE(child.body_ended_well());
    child.kill();
    std::this_thread::sleep_for(milliseconds(50));  // the death is known before anything is received
    for (uint64_t i = 0; i < 10; ++i) {
      std::vector<std::byte> got(500);
      const Status status = child.parent().recv(1, {i, 0}, got);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(got, pattern(500, i));
    }
    std::vector<std::byte> more(500);
    const Status status = child.parent().recv(1, {10, 0}, more);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.rank(), 1);
    EXPECT_EQ(status.message(), "rank 1 (pid " + std::to_string(child.pid()) + ") died");
    EXPECT_EQ(files_in_dev_shm(), names);
  }
  EXPECT_EQ(files_in_dev_shm(), names);
}

TEST_P(ShmProcessTest, AWaitingRankHearsOfADeathByItself) {
  for (const size_t bytes : {size_t{100}, size_t{4} << 20}) {
    for (const bool sending : {false, true}) {
      if (sending && bytes == 100) continue;  // done at once
      ChildRank child([](ShmSide&) { return true; }, options());
      ASSERT_TRUE(child.body_ended_well());
      std::vector<std::byte> memory(bytes);
      Clock::time_point killed;
      std::thread killer([&] {
        std::this_thread::sleep_for(milliseconds(100));
        killed = Clock::now();
        child.kill();
      });
      const Status status =
          sending ? child.parent().send(1, {1, 0}, memory) : child.parent().recv(1, {1, 0}, memory);
      const auto heard = Clock::now();
      killer.join();
      EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
      EXPECT_LT(heard - killed, milliseconds(10'000));
    }
  }
}

TEST_P(ShmProcessTest, APeerKilledInTheMiddleOfALargeMessageIsLost) {
  for (int round = 0; round < 5; ++round) {
    ChildRank child(
        [](ShmSide& side) {
          const auto data = pattern(8 << 20, 1);
          for (uint64_t i = 0; side.send(0, {i, 0}, data).ok(); ++i) {
          }
          return false;
        },
        options());
    std::thread killer([&, round] {
      std::this_thread::sleep_for(milliseconds(20 + 7 * round));
      child.kill();
    });
    const auto data = pattern(8 << 20, 1);
    std::vector<std::byte> got(data.size());
    Status status;
    for (uint64_t i = 0; status.ok(); ++i) {
      status = child.parent().recv(1, {i, 0}, got);
      if (status.ok()) {
        ASSERT_EQ(got, data) << "a message is whole or not there";
      }
    }
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
    EXPECT_EQ(status.rank(), 1);
    killer.join();
  }
}

TEST_P(ShmProcessTest, LeavingProcessesAreNoFailure) {
  const pid_t parent = ::getpid();
  ChildRank child(
      [parent](ShmSide& side) {
        std::vector<std::byte> got(8);
        const bool well =
            side.recv(0, {1, 0}, got).ok() && side.send(0, {1, 1}, got).ok() && ::getppid() == parent;
        side.mailbox->close();
        return well;
      },
      options());
  std::vector<std::byte> data(8);
  EXPECT_TRUE(child.parent().send(1, {1, 0}, data).ok());
  EXPECT_TRUE(child.body_ended_well());
  child.kill();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(child.parent().recv(1, {1, 1}, data).ok());
  child.parent().mailbox->poll();
  EXPECT_TRUE(child.parent().mailbox->failure().ok());
}

TEST(ShmDeadPeerTest, EndpointsOfDeadProcessesAreRefused) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ShmSide side(1, 2);
    write_line(ends[1], side.group->endpoint());
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  ShmSide side(0, 2);
  const Status status = side.group->connect(1, read_line(ends[0]));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("shared memory with rank 1"), std::string::npos) << status.message();
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace braid::testing
