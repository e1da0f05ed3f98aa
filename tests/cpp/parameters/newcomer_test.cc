// SPDX-License-Identifier: Apache-2.0
// Servers that come late. All updates are equal, so the values say how many were applied, and in which state.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kGrown = 512;
constexpr size_t kGrownShards = 8;  // of two servers
constexpr int kPushers = 3;
constexpr int kFirstServers = 2;
constexpr int kStepsBefore = 10;  // updates of a worker before the newcomer comes
constexpr int kStepsAfter = 10;
constexpr size_t kOpenPushes = 3;
constexpr milliseconds kGrowLimit{20'000};

ServiceSetup setup_that_grows(const Place& place, Mode mode) {
  ServiceSetup setup = setup_alone(place, kGrown, kPushers, kFirstServers, mode);
  setup.least_piece = kGrown / kGrownShards;
  return setup;
}

// All workers make equally many steps; how many is known when somebody ends the run.
class Steps {
 public:
  bool next(int worker) {
    const std::lock_guard lock(mutex_);
    int& count = counts_[static_cast<size_t>(worker)];
    if (count == last_) return false;
    ++count;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (last_ == kNoLast) last_ = *std::max_element(counts_.begin(), counts_.end()) + kStepsAfter;
  }
  int least() const {
    const std::lock_guard lock(mutex_);
    return *std::min_element(counts_.begin(), counts_.end());
  }
  int last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  static constexpr int kNoLast = 1'000'000;
  mutable std::mutex mutex_;
  std::vector<int> counts_ = std::vector<int>(kPushers);
  int last_ = kNoLast;
};

// Trains until the steps end. No shard's version ever falls.
void train_with(ParameterService& service, int rank, Steps& steps) {
  std::deque<std::vector<float>> values(kOpenPushes + 1, std::vector<float>(kGrown));
  const std::vector<float> update(kGrown, 1.0f);
  if (rank == 0) {
    ASSERT_TRUE(outcome(service, service.install(values[0].data())).ok());
  }
  std::vector<uint64_t> versions(kGrownShards);
  std::deque<ParameterService::Request> open;
  const auto finish = [&] {
    const Status done = outcome(service, open.front());
    ASSERT_TRUE(done.ok()) << done.message();
    for (size_t shard = 0; shard < kGrownShards; ++shard) {
      ASSERT_GE(open.front()->versions()[shard], versions[shard]);
    }
    versions = open.front()->versions();
    open.pop_front();
  };
  for (size_t i = 0; steps.next(rank); ++i) {
    open.push_back(service.push(update.data(), values[i % values.size()].data(),
                                momentum_table(kGrown, service.state_vectors() > 0), 1, nullptr));
    if (open.size() >= kOpenPushes) finish();
    if (::testing::Test::HasFatalFailure()) return;
  }
  while (!open.empty() && !::testing::Test::HasFatalFailure()) finish();
}

template <class Condition>
::testing::AssertionResult soon(const Condition& condition) {
  const auto began = Clock::now();
  while (!condition()) {
    if (Clock::now() > began + kGrowLimit) return ::testing::AssertionFailure() << "it has not come true";
    std::this_thread::sleep_for(milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

size_t held(const ParameterService& service) { return service.stats().server.versions.size(); }

struct Grown {
  std::vector<std::vector<float>> values = std::vector<std::vector<float>>(kPushers);
  std::vector<std::vector<int>> homes = std::vector<std::vector<int>>(kPushers);
  std::atomic<uint64_t> lost{0};
  int updates = 0;  // of each worker
};

// `newcomer` runs with the service of a server that comes in the middle. When it returns, the run ends.
template <class Change, class Body>
void run_with_newcomer(const Options& options, Mode mode, const Change& change, Grown& found,
                       const Body& newcomer) {
  Steps steps;
  std::atomic<int> finished{0};
  at_all_places(kPushers + kFirstServers + 1, options, [&](const Place& place) {
    ServiceSetup setup = setup_that_grows(place, mode);
    const bool is_newcomer = place.rank == kPushers + kFirstServers;
    if (is_newcomer) {
      setup.newcomer_takes = kGrown;
      ASSERT_TRUE(soon([&] { return steps.least() >= kStepsBefore; }));
    }
    change(setup);
    auto service = must_create(std::move(setup));
    if (is_newcomer) {
      if (service) newcomer(service);
      steps.end();
      if (service) service->close(kGrowLimit, {});
      return;
    }
    ASSERT_NE(service, nullptr);
    if (place.rank < kPushers) {
      const auto rank = static_cast<size_t>(place.rank);
      train_with(*service, place.rank, steps);
      EXPECT_TRUE(outcome(*service, service->rest()).ok());  // others may have lost fewer pushes, and wait for one
      ++finished;
      ASSERT_TRUE(soon([&] { return finished.load() == kPushers; }));
      found.values[rank].resize(kGrown);
      const Status pulled = outcome(*service, service->pull(found.values[rank].data()));
      EXPECT_TRUE(pulled.ok()) << pulled.message();
      found.homes[rank] = service->stats().homes;
      found.lost += service->stats().lost_parts;
    }
    service->close(kGrowLimit, {});
  });
  found.updates = steps.last();
}

constexpr auto kNoChange = [](ServiceSetup&) {};

class Newcomer : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Newcomer,
                         ::testing::Values(Mode::kAsync, Mode::kRoundRobin, Mode::kSsp, Mode::kSync));

void expect_all_applied_once(const Grown& found, Mode mode) {
  EXPECT_EQ(found.lost, 0u);
  const float expected = after_momentum(mode == Mode::kSync ? found.updates : kPushers * found.updates);
  for (const auto& values : found.values) EXPECT_EQ(values, std::vector<float>(kGrown, expected));
}

TEST_P(Newcomer, TakesItsPartAndNothingIsLostOrAppliedTwice) {
  Grown found;
  run_with_newcomer(options_for(wires()[0]), GetParam(), kNoChange, found,
                    [](const auto& service) { EXPECT_TRUE(soon([&] { return held(*service) == 2; })); });
  expect_all_applied_once(found, GetParam());
  for (const auto& homes : found.homes) {
    ASSERT_EQ(homes.size(), kGrownShards);
    for (const int place : {0, 1}) EXPECT_EQ(std::count(homes.begin(), homes.end(), place), 3) << place;
    EXPECT_EQ(std::count(homes.begin(), homes.end(), 2), 2);
  }
}

TEST_P(Newcomer, LeavesAgain) {
  Grown found;
  run_with_newcomer(options_for(wires()[0]), GetParam(), kNoChange, found, [](const auto& service) {
    EXPECT_TRUE(soon([&] { return held(*service) == 2; }));
    service->leave();
    EXPECT_TRUE(soon([&] { return service->stats().workers.empty(); }));
  });
  expect_all_applied_once(found, GetParam());
  for (const auto& homes : found.homes) EXPECT_EQ(std::count(homes.begin(), homes.end(), 2), 0);
}

class NewcomerOnWires : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, NewcomerOnWires, ::testing::ValuesIn(wires()), wire_name);

TEST_P(NewcomerOnWires, TakesItsPart) {
  Grown found;
  run_with_newcomer(options(), Mode::kAsync, kNoChange, found,
                    [](const auto& service) { EXPECT_TRUE(soon([&] { return held(*service) == 2; })); });
  expect_all_applied_once(found, Mode::kAsync);
}

TEST(NewcomerServer, TakesNoMoreThanItsMemoryHolds) {
  Grown found;
  const auto change = [](ServiceSetup& setup) {
    if (setup.newcomer_takes) setup.newcomer_takes = 2 * kGrown / kGrownShards - 1;
  };
  run_with_newcomer(options_for(wires()[0]), Mode::kAsync, change, found, [](const auto& service) {
    EXPECT_TRUE(soon([&] { return held(*service) == 1; }));
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_EQ(held(*service), 1u);
  });
  expect_all_applied_once(found, Mode::kAsync);
}

// No request goes to it, so it could leave unnoticed.
TEST(NewcomerServer, ThatHoldsNothingLeavesAgain) {
  Grown found;
  const auto change = [](ServiceSetup& setup) {
    if (setup.newcomer_takes) setup.newcomer_takes = 0;
  };
  run_with_newcomer(options_for(wires()[0]), Mode::kAsync, change, found, [](const auto& service) {
    EXPECT_TRUE(soon([&] { return service->stats().workers.size() == kPushers; }));
    EXPECT_EQ(held(*service), 0u);
    EXPECT_EQ(service->stats().server.calls, 0u);
    service->leave();
    EXPECT_TRUE(soon([&] { return service->stats().workers.empty(); }));
  });
  expect_all_applied_once(found, Mode::kAsync);
}

// With copies its shards go on at another server, and versions do not fall (train_with()). Without momentum the values
// say how many updates were applied: all but those that workers count as lost. Nothing is applied twice.
TEST(NewcomerServer, MayVanish) {
  for (const Mode mode : {Mode::kAsync, Mode::kSync}) {
    Grown found;
    const auto change = [](ServiceSetup& setup) {
      setup.server.replicas = 1;
      setup.server.rule = rule_from_text("sgd").value();
    };
    run_with_newcomer(options_for(wires()[0]), mode, change, found, [](auto& service) {
      EXPECT_TRUE(soon([&] { return held(*service) == 2 && service->stats().server.copied.size() == 2; }));
      service.reset();
    });
    for (const auto& homes : found.homes) EXPECT_EQ(std::count(homes.begin(), homes.end(), 2), 0);
    const int all = mode == Mode::kSync ? found.updates : kPushers * found.updates;
    for (const auto& values : found.values) {
      uint64_t missing = 0;
      for (size_t shard = 0; shard < kGrownShards; ++shard) {
        const auto part = std::span(values).subspan(shard * (kGrown / kGrownShards), kGrown / kGrownShards);
        for (const float value : part) ASSERT_EQ(value, part[0]) << "whole updates";
        const int applied = static_cast<int>(std::lround(-part[0] / 0.125f));
        ASSERT_LE(applied, all);
        missing += static_cast<uint64_t>(all - applied);
      }
      EXPECT_LE(missing, found.lost);
    }
    // Two shards: what is under way there, and updates of which the copy has none, of one worker or of a whole round.
    constexpr uint64_t kMostLag = 16;
    const uint64_t most = kPushers * kOpenPushes + kMostLag * (mode == Mode::kSync ? kPushers : 1);
    EXPECT_LE(found.lost, 2 * most);
  }
}

TEST(NewcomerServer, TakesCodedAndMappedShards) {
  for (const bool is_mapped : {false, true}) {
    Grown found;
    const auto change = [is_mapped](ServiceSetup& setup) {
      setup.server.rule = rule_from_text("sgd").value();
      if (is_mapped) {
        setup.server.consistency = Consistency::kRelaxed;
      } else {
        setup.server.coding = {codec_from_text("int8").value(), codec_from_text("int8").value()};
      }
    };
    run_with_newcomer(options_for(wires()[0]), Mode::kAsync, change, found,
                      [](const auto& service) { EXPECT_TRUE(soon([&] { return held(*service) == 2; })); });
    const float all = -0.125f * static_cast<float>(kPushers * found.updates);
    for (const auto& values : found.values) {
      for (const float value : values) {
        if (is_mapped) {
          ASSERT_LT(value, 0);  // updates that meet may be lost, so no more is known
          ASSERT_GE(value, all);
        } else {
          ASSERT_NEAR(value, all, 1e-5 * -all);
        }
      }
    }
  }
}

// A worker that comes after the newcomer finds shards there.
TEST(NewcomerServer, IsFoundByALateWorker) {
  Grown found;
  std::atomic<bool> has_part{false};
  std::atomic<bool> is_over{false};
  Steps steps;
  std::atomic<int> finished{0};
  at_all_places(kPushers + kFirstServers + 2, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_that_grows(place, Mode::kAsync);
    if (place.rank == kPushers + kFirstServers) {
      setup.newcomer_takes = kGrown;
      ASSERT_TRUE(soon([&] { return steps.least() >= kStepsBefore; }));
      const auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      EXPECT_TRUE(soon([&] { return held(*service) == 2; }));
      has_part = true;
      service->close(kGrowLimit, {});
      return;
    }
    if (place.rank > kPushers + kFirstServers) {
      setup.member = kPushers;
      setup.is_late = true;
      ASSERT_TRUE(soon([&] { return has_part.load(); }));
      const auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      std::vector<float> values(kGrown, 1.0f);
      EXPECT_TRUE(outcome(*service, service->pull(values.data())).ok());
      EXPECT_LT(*std::max_element(values.begin(), values.end()), 0);
      const auto homes = service->stats().homes;
      EXPECT_EQ(std::count(homes.begin(), homes.end(), 2), 2);
      service->close(milliseconds(0), {});
      is_over = true;
      steps.end();
      return;
    }
    const auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    if (place.rank < kPushers) {
      train_with(*service, place.rank, steps);
      ++finished;
      ASSERT_TRUE(soon([&] { return finished.load() == kPushers; }));
    }
    service->close(kGrowLimit, {});
  });
  EXPECT_TRUE(is_over);
}

TEST(NewcomerServer, IsRefusedWhereAllServersAreRanks) {
  ServiceSetup setup;
  setup.servers = {0};
  setup.newcomer_takes = 1;
  EXPECT_EQ(check(setup).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid::testing
