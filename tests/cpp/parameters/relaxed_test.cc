// SPDX-License-Identifier: Apache-2.0
// Relaxed consistency: workers of a host change a mapped shard by themselves.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

class Relaxed : public EveryWire {
 protected:
  bool is_near() const { return GetParam().transports == "shm"; }
};
INSTANTIATE_TEST_SUITE_P(Wires, Relaxed, ::testing::ValuesIn(wires()), wire_name);

ServiceSetup relaxed_setup(const Place& place, size_t elements, const std::string& rule = "sgd") {
  ServiceSetup setup = setup_of(place, elements, rule);
  setup.server.consistency = Consistency::kRelaxed;
  return setup;
}

std::vector<float> begun(ParameterService& service, const Place& place, const std::vector<float>& values) {
  if (place.rank == 0) {
    EXPECT_TRUE(outcome(service, service.install(values.data())).ok());
  }
  std::vector<float> got(values.size());
  EXPECT_TRUE(outcome(service, service.pull(got.data())).ok());
  return got;
}

void wait_for(const std::atomic<int>& count, int wanted) {
  while (count.load() < wanted) std::this_thread::yield();
}

TEST_P(Relaxed, OneWorkerGetsTheBitsOfAtomic) {
  for (const std::string rule : {"sgd", "add", "elastic"}) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{10'007}}) {
      std::vector<float> results[2];
      for (const Consistency consistency : {Consistency::kAtomic, Consistency::kRelaxed}) {
        std::atomic<int> finished{0};
        on_all_members(
            2, options(),
            [&](const Place& place) {
              ServiceSetup setup = setup_of(place, elements, rule);
              setup.server.consistency = consistency;
              setup.server.divides_by_staleness = true;
              return setup;
            },
            [&](const Place& place, ParameterService& service) {
              std::vector<float> values = begun(service, place, noise(elements, 50));
              for (int step = 0; place.rank == 1 && step < 10; ++step) {
                const std::vector<float> update = noise(elements, step);
                const auto pushed = service.push(update.data(), step % 3 == 0 ? nullptr : values.data(),
                                                 table_of(elements, 0.3), 0.5f, nullptr);
                ASSERT_TRUE(outcome(service, pushed).ok());
              }
              if (place.rank == 1) {
                ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
                results[static_cast<size_t>(consistency)] = values;
              }
              ++finished;
              wait_for(finished, 2);
              const bool is_asked =
                  elements == 0 ? place.rank == 0 : service.extents()[static_cast<size_t>(place.rank)].count > 0;
              EXPECT_EQ(service.stats().server.updates, is_asked ? 10u : 0u);
              const std::map<int, uint64_t> versions = service.stats().server.versions;
              EXPECT_EQ(versions, is_asked ? (std::map<int, uint64_t>{{place.rank, 10}}) : decltype(versions){});
            });
      }
      EXPECT_EQ(results[0], results[1]) << rule;
    }
  }
}

TEST_P(Relaxed, ValuesStayPossibleAndVersionsCountAll) {
  constexpr size_t kElements = 20'000;
  constexpr int kPushes = 50;
  constexpr int kMembers = 3;
  std::atomic<int> finished{0};
  on_all_members(
      kMembers, options(), [&](const Place& place) { return relaxed_setup(place, kElements, "add"); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begun(service, place, std::vector<float>(kElements));
        const std::vector<float> update(kElements, 1.0f);
        for (int i = 0; i < kPushes; ++i) {
          const auto pushed = service.push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
          ASSERT_TRUE(outcome(service, pushed).ok());
          EXPECT_LE(pushed->staleness(), static_cast<uint32_t>(kMembers * kPushes));
        }
        ++finished;
        wait_for(finished, kMembers);
        const auto last = service.pull(values.data());
        ASSERT_TRUE(outcome(service, last).ok());
        EXPECT_EQ(last->versions(), std::vector<uint64_t>(kMembers, kMembers * kPushes));
        for (const float value : values) {
          ASSERT_GE(value, kPushes) << "at least one worker's pushes";
          ASSERT_LE(value, kMembers * kPushes);
          ASSERT_EQ(value, static_cast<float>(static_cast<int>(value))) << "no value is torn";
        }
        const auto stats = service.stats();
        EXPECT_EQ(stats.server.updates, static_cast<uint64_t>(kMembers * kPushes));
        uint64_t counted = 0;
        for (const uint64_t row : stats.server.staleness) counted += row;
        EXPECT_EQ(counted, static_cast<uint64_t>(kMembers * kPushes));
        for (int server = 0; server < kMembers; ++server) {
          const bool is_mapped = stats.wires[static_cast<size_t>(server)] == "mapped memory";
          EXPECT_EQ(is_mapped, is_near() || server == place.rank) << stats.wires[static_cast<size_t>(server)];
          if (is_mapped) {
            EXPECT_LT(stats.sent_bytes[static_cast<size_t>(server)], 4 * kElements * 2);
          }
        }
      });
}

TEST_P(Relaxed, RefusedNumbersChangeNothing) {
  constexpr size_t kElements = 100;
  std::atomic<int> finished{0};
  on_all_members(
      2, options(), [&](const Place& place) { return relaxed_setup(place, kElements); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begun(service, place, noise(kElements, 1));
        const std::vector<float> update(kElements, 1.0f);
        EXPECT_EQ(outcome(service, service.push(update.data(), values.data(), table_of(kElements, -1), 1, nullptr))
                      .code(),
                  Code::kInvalidArgument);
        EXPECT_EQ(outcome(service, service.push(update.data(), values.data(), table_of(3, 1), 1, nullptr)).code(),
                  Code::kInvalidArgument);
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        EXPECT_EQ(values, noise(kElements, 1));
        ++finished;
        wait_for(finished, 2);
      });
}

TEST_P(Relaxed, WhatIsRestoredIsSeenByAll) {
  constexpr size_t kElements = 100;
  std::atomic<int> begun_count{0};
  std::atomic<int> restored{0};
  std::atomic<int> finished{0};
  on_all_members(
      2, options(), [&](const Place& place) { return relaxed_setup(place, kElements); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begun(service, place, noise(kElements, 1));
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        ++begun_count;
        wait_for(begun_count, 2);
        if (place.rank == 0) {
          std::vector<float> saved(kElements);
          const auto snapshot = service.snapshot(saved.data());
          ASSERT_TRUE(outcome(service, snapshot).ok());
          EXPECT_EQ(saved, noise(kElements, 1));
          const std::vector<float> other = noise(kElements, 2);
          ASSERT_TRUE(outcome(service, service.restore(other.data(), {7, 7})).ok());
          ++restored;
        }
        wait_for(restored, 1);
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        EXPECT_EQ(values, noise(kElements, 2));
        ++finished;
        wait_for(finished, 2);
      });
}

// Memory whose last page holds up the first thread that writes to it, until it is let go.
class SlowMemory {
 public:
  explicit SlowMemory(size_t pages) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(pages * page_) {
    begin_ =
        static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(begin_, MAP_FAILED);
    struct sigaction action = {};
    action.sa_sigaction = &SlowMemory::on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &former_);
    only_ = this;
  }
  ~SlowMemory() {
    sigaction(SIGSEGV, &former_, nullptr);
    munmap(begin_, bytes_);
  }
  float* numbers() { return reinterpret_cast<float*>(begin_); }
  size_t count() const { return bytes_ / sizeof(float); }
  void hold_up() { mprotect(last(), page_, PROT_READ); }
  bool has_caught() const { return has_caught_; }
  void let_go() { is_let_go_ = true; }

 private:
  std::byte* last() { return begin_ + bytes_ - page_; }
  static void on_fault(int, siginfo_t* fault, void*) {
    SlowMemory& memory = *only_;
    const auto* const at = static_cast<const std::byte*>(fault->si_addr);
    if (at < memory.last() || at >= memory.last() + memory.page_) {
      sigaction(SIGSEGV, &memory.former_, nullptr);
      return;
    }
    memory.has_caught_ = true;
    const timespec moment{0, 1'000'000};
    while (!memory.is_let_go_.load()) nanosleep(&moment, nullptr);
    mprotect(memory.last(), memory.page_, PROT_READ | PROT_WRITE);
  }

  static inline SlowMemory* only_ = nullptr;
  const size_t page_;
  const size_t bytes_;
  std::byte* begin_ = nullptr;
  struct sigaction former_ = {};
  std::atomic<bool> has_caught_{false};
  std::atomic<bool> is_let_go_{false};
};

// A push by the worker's own thread has written a part of its result when the server vanishes. The service must not
// bring the successor that part.
TEST(RelaxedRescue, WaitsForAPushUnderWay) {
  constexpr milliseconds kLongEnough{300};
  SlowMemory values(3);
  const size_t count = values.count();
  std::atomic<ParameterService*> pusher{nullptr};
  at_all_places(2, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = relaxed_setup(place, count, "add");
    setup.servers = {1, 0};
    setup.shares = {1, 0};
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    begun(*service, place, std::vector<float>(count, 7.0f));
    if (place.rank == 1) {
      while (!values.has_caught() && !::testing::Test::HasFatalFailure()) std::this_thread::yield();
      service.reset();
      const auto began = Clock::now();
      const auto home = [&] { return pusher.load()->stats().homes[0]; };
      while (home() == 0 && Clock::now() < began + kLongEnough) std::this_thread::sleep_for(milliseconds(1));
      EXPECT_EQ(home(), 0) << "the successor was brought values while they were written";
      values.let_go();
      return;
    }
    pusher = service.get();
    const std::vector<float> update(count, 1.0f);
    const auto push = [&] {
      return outcome(*service, service->push(update.data(), values.numbers(), table_of(count, 1), 1, nullptr));
    };
    ASSERT_TRUE(push().ok());
    ASSERT_EQ(service->stats().wires[0], "mapped memory");
    values.hold_up();
    ASSERT_TRUE(push().ok());
    ASSERT_TRUE(outcome(*service, service->pull(values.numbers())).ok());
    EXPECT_EQ(std::count(values.numbers(), values.numbers() + count, 9.0f), static_cast<ptrdiff_t>(count));
    service->close(milliseconds(20'000), {});
  });
}

TEST_P(Relaxed, AVanishedMembersShardMoves) {
  constexpr size_t kElements = 3000;
  std::atomic<bool> is_gone{false};
  std::atomic<int> ready{0};
  at_all_places(3, options(), [&](const Place& place) {
    auto service = must_create(relaxed_setup(place, kElements, "add"));
    ASSERT_NE(service, nullptr);
    std::vector<float> values = begun(*service, place, std::vector<float>(kElements, 7.0f));
    const std::vector<float> update(kElements, 1.0f);
    const auto step = [&] {
      return outcome(*service, service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr));
    };
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(step().ok());
    ++ready;
    wait_for(ready, 3);
    if (place.rank == 2) {
      service.reset();
      is_gone = true;
      return;
    }
    while (!is_gone.load()) ASSERT_TRUE(step().ok());
    for (int i = 0; i < 20; ++i) {
      const Status done = step();
      ASSERT_TRUE(done.ok()) << done.message();
      for (const float value : values) ASSERT_TRUE(value >= 7.0f && value < 1e6f);
    }
    EXPECT_EQ(service->stats().homes, (std::vector<int>{0, 1, 0}));
    if (is_near()) {
      EXPECT_EQ(service->stats().wires[0], "mapped memory");
      EXPECT_NE(service->stats().wires[2], "mapped memory");
    }
    service->close(milliseconds(20'000), {});
  });
}

int descriptors() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

int mapped_shards() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("braid-shard") != std::string::npos ? 1 : 0;
  return count;
}

TEST_P(Relaxed, NothingIsLeftBehind) {
  int at_start = -1;
  for (int run = 0; run < 4; ++run) {
    std::atomic<int> finished{0};
    on_all_members(
        2, options(), [&](const Place& place) { return relaxed_setup(place, 1000); },
        [&](const Place& place, ParameterService& service) {
          std::vector<float> values = begun(service, place, std::vector<float>(1000));
          ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
          ++finished;
          wait_for(finished, 2);
          if (place.rank == 0) {
            EXPECT_GE(mapped_shards(), 2);
          }
          ++finished;
          wait_for(finished, 4);
        });
    EXPECT_EQ(mapped_shards(), 0);
    if (run == 0) at_start = descriptors();
  }
  EXPECT_EQ(descriptors(), at_start);
}

// A worker that pushed through a codec before it had the map owes a residual: it goes into the mapped shard.
TEST_P(Relaxed, CodecsAndMappedMemoryLoseNothing) {
  constexpr size_t kElements = 1000;
  std::atomic<int> finished{0};
  on_all_members(
      2, options(),
      [&](const Place& place) {
        ServiceSetup setup = relaxed_setup(place, kElements, "add");
        setup.servers = {0};
        setup.server.coding = {codec_option("int4").value(), codec_option("int8").value()};
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values(kElements);
        std::vector<float> sum(kElements);
        if (place.rank == 0) {
          ASSERT_TRUE(outcome(service, service.install(values.data())).ok());
        }
        for (int step = 0; place.rank == 1 && step < 5; ++step) {
          const std::vector<float> update = noise(kElements, step);
          for (size_t i = 0; i < kElements; ++i) sum[i] += update[i];
          ASSERT_TRUE(
              outcome(service, service.push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr))
                  .ok());
        }
        if (place.rank == 1 && is_near()) {
          for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(values[i], sum[i], 1e-5f);
          EXPECT_EQ(service.residual(0), std::vector<float>(kElements));
        }
        ++finished;
        wait_for(finished, 2);
      });
}

TEST(RelaxedSetup, WhatDoesNotGoTogetherIsRefused) {
  at_all_places(1, Options(), [&](const Place& place) {
    for (const std::string rule : {"sgd:momentum", "adam", "sgd:compensates", "delayed_nesterov:every=2"}) {
      const auto made = ParameterService::create(relaxed_setup(place, 10, rule));
      EXPECT_TRUE(says(made.status(), "rules without state")) << made.status().message();
    }
    ServiceSetup waits = relaxed_setup(place, 10);
    waits.server.mode = Mode::kSync;
    EXPECT_TRUE(says(ParameterService::create(std::move(waits)).status(), "needs the mode async"));
  });
  EXPECT_EQ(consistency_from_text("lax").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid::testing
