// SPDX-License-Identifier: Apache-2.0
// Whole services, over every wire.
#include "parameters/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

class Service : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Service, ::testing::ValuesIn(wires()), wire_name);

std::vector<float> counted(size_t elements, float from) {
  std::vector<float> values(elements);
  std::iota(values.begin(), values.end(), from);
  return values;
}

// Worker 0 installs its values; then every worker pulls.
std::vector<float> begin_with(ParameterService& service, const Place& place, const std::vector<float>& values) {
  if (place.rank == 0) {
    EXPECT_TRUE(outcome(service, service.install(values.data())).ok());
  }
  std::vector<float> got(values.size());
  const Status pulled = outcome(service, service.pull(got.data()));
  EXPECT_TRUE(pulled.ok()) << pulled.message();
  return got;
}

TEST_P(Service, AllWorkersBeginWithTheValuesOfTheFirst) {
  for (const int members : {1, 2, 3, 5}) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{17}, size_t{100'003}}) {
      on_all_members(
          members, options(), [&](const Place& place) { return setup_of(place, elements); },
          [&](const Place& place, ParameterService& service) {
            EXPECT_EQ(begin_with(service, place, counted(elements, 1)), counted(elements, 1));
          });
    }
  }
}

TEST_P(Service, UpdatesOfAllWorkersAddUp) {
  constexpr size_t kElements = 50'000;
  constexpr int kPushes = 20;
  std::atomic<int> finished{0};
  on_all_members(
      3, options(), [&](const Place& place) { return setup_of(place, kElements); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begin_with(service, place, std::vector<float>(kElements, 0.0f));
        const std::vector<float> update(kElements, -1.0f);
        for (int i = 0; i < kPushes; ++i) {
          const auto request = service.push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
          const Status done = outcome(service, request);
          ASSERT_TRUE(done.ok()) << done.message();
          EXPECT_GE(values[0], static_cast<float>(i + 1));
        }
        ++finished;
        while (finished.load() < 3) std::this_thread::yield();
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        EXPECT_EQ(values, std::vector<float>(kElements, 3.0f * kPushes));
      });
}

TEST_P(Service, ManyRequestsMayBeUnderWay) {
  constexpr size_t kElements = 64;
  on_all_members(
      2, options(), [&](const Place& place) { return setup_of(place, kElements); },
      [&](const Place& place, ParameterService& service) {
        begin_with(service, place, std::vector<float>(kElements, 0.0f));
        const std::vector<float> update(kElements, -1.0f);
        std::vector<std::vector<float>> results(16, std::vector<float>(kElements));
        for (int round = 0; round < 20; ++round) {
          std::vector<ParameterService::Request> requests;
          for (auto& result : results) {
            requests.push_back(service.push(update.data(), result.data(), table_of(kElements, 1), 1, nullptr));
          }
          for (const auto& request : requests) ASSERT_TRUE(outcome(service, request).ok());
          for (size_t i = 1; i < results.size(); ++i) EXPECT_GT(results[i][0], results[i - 1][0]);
        }
      });
}

TEST_P(Service, SyncGivesAllTheSameBits) {
  constexpr size_t kElements = 1000;
  std::vector<std::vector<float>> last(4);
  on_all_members(
      4, options(),
      [&](const Place& place) {
        ServiceSetup setup = setup_of(place, kElements);
        setup.server.mode = Mode::kSync;
        setup.server.buffers = 2;
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begin_with(service, place, counted(kElements, 0));
        std::vector<float> update(kElements);
        for (int step = 0; step < 10; ++step) {
          for (size_t i = 0; i < kElements; ++i) {
            update[i] = 0.1f * static_cast<float>(place.rank + 1) + 1e-3f * static_cast<float>(i % 7);
          }
          ASSERT_TRUE(
              outcome(service, service.push(update.data(), values.data(), table_of(kElements, 0.1f), 1, nullptr))
                  .ok());
        }
        last[static_cast<size_t>(place.rank)] = values;
      });
  for (const auto& values : last) EXPECT_EQ(values, last[0]);
  EXPECT_NEAR(last[0][0], 0 - 10 * 0.1f * 0.25f, 1e-5f);
}

// Shards follow each other through the buffers of a server, whoever has to wait for whom.
TEST_P(Service, ALargeVectorHasSeveralShardsAtEachServer) {
  constexpr size_t kElements = 4096, kLeast = 400;  // three shards at each of three servers
  constexpr int kPushes = 10;
  for (const Mode mode : {Mode::kAsync, Mode::kRoundRobin, Mode::kSsp, Mode::kSync}) {
    std::atomic<int> finished{0};
    on_all_members(
        3, options(),
        [&](const Place& place) {
          ServiceSetup setup = setup_of(place, kElements);
          setup.least_piece = kLeast;
          setup.server.mode = mode;
          setup.server.buffers = 1;
          return setup;
        },
        [&](const Place& place, ParameterService& service) {
          EXPECT_EQ(service.stats().homes, (std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
          std::vector<float> values = begin_with(service, place, std::vector<float>(kElements, 0.0f));
          const std::vector<float> update(kElements, -1.0f);
          for (int i = 0; i < kPushes; ++i) {
            const Status done =
                outcome(service, service.push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr));
            ASSERT_TRUE(done.ok()) << done.message();
          }
          ++finished;
          while (finished.load() < 3) std::this_thread::yield();
          ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
          EXPECT_EQ(values, std::vector<float>(kElements, mode == Mode::kSync ? kPushes : 3 * kPushes));
        });
  }
}

TEST_P(Service, NobodyIsMoreThanTheBoundAhead) {
  constexpr size_t kElements = 32;
  constexpr int kSteps = 30;
  std::array<std::atomic<int>, 3> clocks{};
  on_all_members(
      3, options(),
      [&](const Place& place) {
        ServiceSetup setup = setup_of(place, kElements);
        setup.server.mode = Mode::kSsp;
        setup.server.staleness = 2;
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begin_with(service, place, std::vector<float>(kElements, 0.0f));
        const std::vector<float> update(kElements, 1.0f);
        for (int step = 1; step <= kSteps; ++step) {
          if (place.rank == 2) std::this_thread::sleep_for(milliseconds(1));
          ASSERT_TRUE(
              outcome(service, service.push(update.data(), values.data(), table_of(kElements, 0.1f), 1, nullptr))
                  .ok());
          clocks[static_cast<size_t>(place.rank)] = step;
          int least = step;
          // A worker that has pushed notes it a moment later: so one more is allowed here.
          for (const auto& clock : clocks) least = std::min(least, clock.load());
          EXPECT_LE(step - least, 2 + 1);
        }
      });
}

TEST_P(Service, ASnapshotIsRestored) {
  constexpr size_t kElements = 100;
  on_all_members(
      2, options(), [&](const Place& place) { return setup_of(place, kElements, "adam"); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = begin_with(service, place, counted(kElements, 0));
        if (place.rank != 0) return;
        const std::vector<float> update(kElements, 1.0f);
        const auto step = [&] {
          EXPECT_TRUE(
              outcome(service, service.push(update.data(), values.data(), table_of(kElements, 0.1f), 1, nullptr))
                  .ok());
        };
        step();
        std::vector<float> saved(kElements * 3);
        const auto snapshot = service.snapshot(saved.data());
        ASSERT_TRUE(outcome(service, snapshot).ok());
        step();
        const std::vector<float> after = values;
        step();
        ASSERT_TRUE(outcome(service, service.restore(saved.data(), snapshot->steps())).ok());
        step();
        EXPECT_EQ(values, after);
      });
}

TEST_P(Service, ServersMayBeFewerThanWorkers) {
  constexpr size_t kElements = 1000;
  on_all_members(
      3, options(),
      [&](const Place& place) {
        ServiceSetup setup = setup_of(place, kElements);
        setup.servers = {2, 0};
        setup.shares = {3, 1};
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        EXPECT_EQ(begin_with(service, place, counted(kElements, 5)), counted(kElements, 5));
        EXPECT_EQ(service.stats().homes, (std::vector<int>{0, 1}));
      });
}

TEST_P(Service, AMemberThatDoesNotWorkServes) {
  constexpr size_t kElements = 1000;
  on_all_members(
      3, options(),
      [&](const Place& place) {
        ServiceSetup setup = setup_of(place, kElements);
        setup.workers = 2;
        setup.servers = {2};
        return setup;
      },
      [&](const Place& place, ParameterService& service) {
        if (place.rank == 2) return;
        EXPECT_EQ(begin_with(service, place, counted(kElements, 5)), counted(kElements, 5));
      });
}

TEST_P(Service, SettingsThatDifferAreNamedOnAllMembers) {
  at_all_places(3, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, 100, place.rank == 1 ? "adam" : "sgd");
    const auto service = ParameterService::create(std::move(setup));
    ASSERT_FALSE(service.ok());
    EXPECT_EQ(service.status().code(), Code::kMismatch);
    EXPECT_TRUE(says(service.status(), "other settings")) << service.status().message();
    EXPECT_TRUE(says(service.status(), "rule adam") && says(service.status(), "rule sgd"))
        << service.status().message();
  });
}

TEST_P(Service, AWorkerMayComeLate) {
  constexpr size_t kElements = 500;
  std::atomic<bool> has_come{false};
  Options longer = options();
  at_all_places(3, longer, [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.workers = 2;
    setup.servers = {0, 1};
    setup.is_late = place.rank == 2;
    const auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(counted(kElements, 1).data())).ok());
    }
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    EXPECT_EQ(values, counted(kElements, 1));
    if (place.rank == 2) has_come = true;
    while (!has_come.load()) std::this_thread::sleep_for(milliseconds(1));
    service->close(milliseconds(20'000), {});
  });
}

TEST(ServiceSetup, WrongArgumentsAreRefused) {
  at_all_places(1, Options(), [&](const Place& place) {
    const auto refused = [&](auto change) {
      ServiceSetup setup = setup_of(place, 10);
      change(setup);
      return ParameterService::create(std::move(setup)).status().code();
    };
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.workers = 0; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.servers = {}; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.servers = {0, 0}; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.servers = {-1}; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.shares = {1, 2}; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](ServiceSetup& setup) { setup.is_late = true; }), Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace braid::testing
