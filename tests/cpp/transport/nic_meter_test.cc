// SPDX-License-Identifier: Apache-2.0
// What a group says of its NIC, over real sockets. Those are paced, so that there is a rate to find.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/slowness.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

constexpr double kPace = 30e6;

// Of every socket of this process.
void set_option(int level, int option, int value) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)::setsockopt(std::stoi(entry.path().filename()), level, option, &value, sizeof value);
  }
}

void pace(double bytes_per_s) { set_option(SOL_SOCKET, SO_MAX_PACING_RATE, static_cast<int>(bytes_per_s)); }

bool is_near(double measured, double rate) { return std::abs(measured - rate) <= 0.25 * rate; }

// How often the network thread went to sleep: once for every time that it woke up.
long naps() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, word;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "braid-net") continue;
    std::ifstream status(task.path() / "status");
    while (status >> word) {
      if (word != "voluntary_ctxt_switches:") continue;
      long count = -1;
      status >> count;
      return count;
    }
  }
  return -1;
}

class NicMeterTest : public ::testing::Test {
 protected:
  // Segments as a real network has them: those of loopback, of 64 KiB, would come further apart than the meter
  // looks. Listeners pass it on.
  NicMeterTest() { set_option(IPPROTO_TCP, TCP_MAXSEG, 1448); }

  // Moves `count` messages from rank 0 to rank 1, `ahead` of them at a time.
  void stream(uint64_t count, size_t bytes, size_t ahead) {
    const auto data = pattern(bytes, 1);
    ++stream_;
    on_all_ranks(2, [&](Node rank) {
      std::vector<std::vector<std::byte>> in(ahead, std::vector<std::byte>(bytes));
      std::vector<Request> requests(ahead);
      for (uint64_t i = 0; i < count + ahead; ++i) {
        const size_t slot = i % ahead;
        if (i >= ahead) {
          ASSERT_TRUE(wait(group_, rank, requests[slot]).ok());
        }
        if (i >= count) continue;
        if (rank == 0) group_.mailbox(0).send(1, {stream_, i}, data, &requests[slot]);
        if (rank == 1) group_.mailbox(1).recv(0, {stream_, i}, in[slot], &requests[slot]);
      }
    });
  }
  void stream_large(uint64_t count) { stream(count, 64 * 1024, 8); }

  TcpTestGroup group_{std::make_shared<TcpNet>(2, tcp_options("127.0.0.1", 1)), "metered"};
  uint64_t stream_ = 0;
};

TEST_F(NicMeterTest, FindsTheRateAndFollowsIt) {
  stream(1, 100, 1);  // connects
  for (const double rate : {kPace, kPace / 3, kPace}) {
    pace(rate);
    stream_large(100);
    NicRates sender, receiver;
    for (int tries = 0; tries < 5;
         ++tries) {  // where the threads do not get their turn the stream itself is slower
      for (const Node rank : {0, 1}) group_.group(rank).take_rates();
      stream_large(250);
      sender = group_.group(0).take_rates(), receiver = group_.group(1).take_rates();
      if (is_near(sender.up_bytes_per_s, rate) && is_near(receiver.down_bytes_per_s, rate)) break;
    }
    EXPECT_PRED2(is_near, sender.up_bytes_per_s, rate);
    EXPECT_PRED2(is_near, receiver.down_bytes_per_s, rate);
    EXPECT_EQ(sender.down_bytes_per_s, 0);
    EXPECT_EQ(receiver.up_bytes_per_s, 0);
  }
}

TEST_F(NicMeterTest, SaysNothingOfSmallMessages) {
  on_all_ranks(2, [&](Node rank) {
    std::vector<std::byte> ball(1000);
    for (uint64_t i = 0; i < 3000; ++i) {  // 3 MB each way
      for (const Node from : {0, 1}) {
        Request request;
        if (rank == from) {
          group_.mailbox(rank).send(1 - rank, {1, i}, ball, &request);
        } else {
          group_.mailbox(rank).recv(from, {1, i}, ball, &request);
        }
        ASSERT_TRUE(wait(group_, rank, request).ok());
      }
    }
  });
  for (const Node rank : {0, 1}) {
    const NicRates rates = group_.group(rank).take_rates();
    EXPECT_EQ(rates.up_bytes_per_s, 0);
    EXPECT_EQ(rates.down_bytes_per_s, 0);
  }
}

TEST_F(NicMeterTest, SleepsWhileNothingMoves) {
  stream_large(200);
  ASSERT_GT(naps(), 0);
  const Deadline begun = Clock::now();
  long before = 0, after = naps();
  do {  // it looks some times more before it sleeps
    before = after;
    std::this_thread::sleep_for(milliseconds(300));
    after = naps();
  } while (after != before && Clock::now() - begun < limit(milliseconds(10'000)));
  EXPECT_EQ(after, before);
}

TEST_F(NicMeterTest, HasNothingToSayOfAGroupThatWasLeft) {
  pace(kPace);
  stream_large(200);
  group_.group(0).leave();
  EXPECT_EQ(group_.group(0).take_rates().up_bytes_per_s, 0);
}

TEST_F(NicMeterTest, IsAskedFromAnyThread) {
  std::atomic<bool> over{false};
  std::thread asking([&] {
    while (!over) {
      for (const Node rank : {0, 1}) group_.group(rank).take_rates();
    }
  });
  stream_large(200);
  over = true;
  asking.join();
}

}  // namespace
}  // namespace braid::testing
