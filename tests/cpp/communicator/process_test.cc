// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, one of which is killed in the middle of an operation.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

// One file per key, in a folder that all processes see.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Status set(const std::string& key, const std::string& value) override {
    const auto file = path(key), fresh = folder_ / ("fresh" + std::to_string(::getpid()));
    std::ofstream(fresh, std::ios::binary) << value;
    std::filesystem::rename(fresh, file);  // whole, or not there
    return {};
  }

  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    const Deadline deadline = deadline_after(timeout);
    while (Clock::now() < deadline) {
      if (std::ifstream file(path(key), std::ios::binary); file) {
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return Status(Code::kTimeout, "no key " + key);
  }

 private:
  std::filesystem::path path(std::string key) const {
    for (char& c : key) c = c == '/' ? '_' : c;
    return folder_ / key;
  }

  const std::filesystem::path folder_;
};

constexpr int kRanks = 4;
constexpr Node kVictim = 1;

// Sums until something goes wrong. 0 when that was the victim's death, and said so.
int child(Node rank, const std::filesystem::path& folder, const Options& options) {
  auto engine = Engine::create(options);
  if (!engine.ok()) return 2;
  auto store = std::make_shared<FolderStore>(folder);
  auto group = Communicator::create(engine.value(), store, rank, kRanks, "test", options);
  if (!group.ok()) return 3;
  std::vector<float> values(1 << 20);
  Status status;
  for (int i = 0; status.ok(); ++i) {
    if (i == 5) (void)store->set("busy" + std::to_string(rank), "");
    status = run(*group.value(), all_reduce(values), rank % 2 == 0);
  }
  (void)store->set("end" + std::to_string(rank), status.message());
  group.value()->shutdown();
  return status.code() == Code::kPeerLost && status.rank() == kVictim ? 0 : 4;
}

class Killed : public EveryWire {};

TEST_P(Killed, InTheMiddleOfASumIsNamedByAllSurvivorsSoon) {
  std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  pid_t pids[kRanks];
  for (Node rank = 0; rank < kRanks; ++rank) {
    pids[rank] = ::fork();
    ASSERT_GE(pids[rank], 0);
    if (pids[rank] == 0) ::_exit(child(rank, folder, options()));
  }
  FolderStore store(folder);
  bool busy = true;
  for (Node rank = 0; rank < kRanks; ++rank) {
    busy &= store.get("busy" + std::to_string(rank), milliseconds(20'000)).ok();
  }
  EXPECT_TRUE(busy);
  ::kill(pids[kVictim], SIGKILL);
  const auto killed = Clock::now();
  for (Node rank = 0; rank < kRanks; ++rank) {
    const auto end = rank == kVictim || !busy ? Result<std::string>("")
                                              : store.get("end" + std::to_string(rank), milliseconds(20'000));
    EXPECT_TRUE(end.ok()) << "rank " << rank << " has not noticed";
    EXPECT_LT(Clock::now() - killed, milliseconds(12'000)) << "rank " << rank;
    if (!end.ok() || !busy) ::kill(pids[rank], SIGKILL);
    int exit = -1;
    ASSERT_EQ(::waitpid(pids[rank], &exit, 0), pids[rank]);
    if (rank == kVictim) continue;
    EXPECT_TRUE(WIFEXITED(exit) && WEXITSTATUS(exit) == 0)
        << "rank " << rank << ": " << (end.ok() ? end.value() : end.status().message());
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Wires, Killed, ::testing::ValuesIn(wires()), wire_name);

}  // namespace
}  // namespace braid::testing
