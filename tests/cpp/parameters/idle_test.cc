// SPDX-License-Identifier: Apache-2.0
// Servers that hold no numbers: workers do not call them, and they can still take a shard, leave, or vanish.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kIdleNumbers = 320;
constexpr int kIdleWorkers = 3;
constexpr int kIdleServers = 3;
constexpr int kIdlePlace = 1;
constexpr int kIdleSteps = 30;
constexpr milliseconds kIdleLimit{20'000};
const std::vector<double> kIdleShares = {1, 0, 1};

// The server at kIdlePlace is given nothing.
ServiceSetup setup_with_idle(const Place& place, Mode mode) {
  ServiceSetup setup = setup_alone(place, kIdleNumbers, kIdleWorkers, kIdleServers, mode);
  setup.shares = kIdleShares;
  if (mode == Mode::kQuorum) setup.server.quorum = {.at_least = kIdleWorkers, .grace = milliseconds(0)};
  return setup;
}

template <class Condition>
::testing::AssertionResult comes_true(const Condition& condition) {
  const auto began = Clock::now();
  while (!condition()) {
    if (Clock::now() > began + kIdleLimit) return ::testing::AssertionFailure() << "it has not come true";
    std::this_thread::sleep_for(milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

// Runs workers and servers; what servers do is given by place. Each worker makes kIdleSteps pushes, then
// `in_between` is called, then it makes as many again.
class Idle {
 public:
  explicit Idle(Mode mode) : mode_(mode) {}

  // A server that returns has ended by itself, or is closed in good order.
  std::function<void(int place, std::unique_ptr<ParameterService>&)> serve = [](int, auto&) {};
  std::function<void(ParameterService&)> in_between = [](ParameterService&) {};
  std::function<void(ServiceSetup&)> change = [](ServiceSetup&) {};
  std::atomic<int> trained{0};  // workers that have made the first pushes
  std::atomic<uint64_t> lost{0};
  std::vector<std::vector<float>> values = std::vector<std::vector<float>>(kIdleWorkers);
  std::vector<std::vector<int>> homes = std::vector<std::vector<int>>(kIdleWorkers);
  std::vector<std::vector<uint64_t>> versions = std::vector<std::vector<uint64_t>>(kIdleWorkers);
  std::array<std::atomic<uint64_t>, kIdleServers> calls{};

  void run() {
    at_all_places(kIdleWorkers + kIdleServers, options_for(wires()[0]), [this](const Place& place) {
      ServiceSetup setup = setup_with_idle(place, mode_);
      change(setup);
      auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      if (place.rank < kIdleWorkers) {
        work(place.rank, *service);
      } else {
        const int at = place.rank - kIdleWorkers;
        serve(at, service);
        if (!service) return;
        EXPECT_TRUE(comes_true([&] { return finished_.load() == kIdleWorkers; }));
        calls[static_cast<size_t>(at)] = service->stats().server.calls;
      }
      service->close(kIdleLimit, {});
    });
  }

 private:
  void work(int rank, ParameterService& service) {
    std::vector<float>& mine = values[static_cast<size_t>(rank)];
    mine.resize(kIdleNumbers);
    if (rank == 0) {
      ASSERT_TRUE(outcome(service, service.install(mine.data())).ok());
    }
    train(rank, service, mine);
    ++trained;
    ASSERT_TRUE(comes_true([&] { return trained.load() == kIdleWorkers; }));
    in_between(service);
    train(rank, service, mine);
    EXPECT_TRUE(outcome(service, service.rest()).ok());
    ++finished_;
    ASSERT_TRUE(comes_true([&] { return finished_.load() == kIdleWorkers; }));
    const auto pulled = service.pull(mine.data());
    ASSERT_TRUE(outcome(service, pulled).ok()) << pulled->status().message();
    versions[static_cast<size_t>(rank)] = pulled->versions();
    homes[static_cast<size_t>(rank)] = service.stats().homes;
    lost += service.stats().lost_parts;
  }
  void train(int rank, ParameterService& service, std::vector<float>& mine) {
    const std::vector<float> update(kIdleNumbers, 1.0f);
    for (int i = 0; i < kIdleSteps && !::testing::Test::HasFatalFailure(); ++i) {
      const int step = ++begun_[static_cast<size_t>(rank)];
      const auto request = service.push(update.data(), mine.data(), momentum_table(kIdleNumbers), 1, nullptr);
      const Status done = outcome(service, request);
      ASSERT_TRUE(done.ok()) << done.message();
      if (mode_ == Mode::kSsp) {
        for (const auto& others : begun_) ASSERT_GE(others.load(), step - 2) << "the bound of setup_alone()";
      }
      if (mode_ == Mode::kSync && lost.load() == 0 && is_exact) {
        ASSERT_EQ(mine, std::vector<float>(kIdleNumbers, after_momentum(step)));
      }
      if (rank == 1) std::this_thread::sleep_for(milliseconds(1));  // the others must wait for it
    }
  }

  const Mode mode_;
  std::array<std::atomic<int>, kIdleWorkers> begun_{};
  std::atomic<int> finished_{0};

 public:
  bool is_exact = true;  // no server vanishes
  void expect_all_applied_once() const {
    EXPECT_EQ(lost, 0u);
    const bool has_rounds = mode_ == Mode::kSync || mode_ == Mode::kQuorum;
    const float expected = after_momentum(2 * kIdleSteps * (has_rounds ? 1 : kIdleWorkers));
    for (const auto& found : values) EXPECT_EQ(found, std::vector<float>(kIdleNumbers, expected));
  }
};

class IdleServer : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, IdleServer,
                         ::testing::Values(Mode::kAsync, Mode::kRoundRobin, Mode::kSsp, Mode::kSync,
                                           Mode::kQuorum));

TEST_P(IdleServer, IsNotCalledWhileOthersTrain) {
  Idle idle(GetParam());
  idle.run();
  idle.expect_all_applied_once();
  EXPECT_EQ(idle.calls[kIdlePlace], 0u);
  for (const size_t place : {0, 2}) EXPECT_GE(idle.calls[place], 2u * kIdleSteps * kIdleWorkers);
  for (const auto& found : idle.homes) EXPECT_EQ(found, (std::vector<int>{0, 1, 2}));
  for (const auto& found : idle.versions) EXPECT_EQ(found[kIdlePlace], found[0]) << "as the others";
}

TEST_P(IdleServer, TakesTheShardOfOneThatLeaves) {
  Idle idle(GetParam());
  std::atomic<bool> has_left{false};
  idle.serve = [&](int place, auto& service) {
    if (place != 0) return;
    EXPECT_TRUE(comes_true([&] { return idle.trained.load() == kIdleWorkers; }));
    service->leave();
    EXPECT_TRUE(comes_true([&] { return service->stats().workers.empty(); }));
    has_left = true;
  };
  idle.run();
  idle.expect_all_applied_once();
  EXPECT_TRUE(has_left);
  EXPECT_GT(idle.calls[kIdlePlace], 0u);
  for (const auto& found : idle.homes) EXPECT_EQ(found, (std::vector<int>{1, 1, 2}));
}

TEST_P(IdleServer, TakesTheShardOfOneThatVanishes) {
  Idle idle(GetParam());
  idle.is_exact = false;
  std::atomic<bool> is_gone{false};
  idle.serve = [&](int place, auto& service) {
    if (place != 0) return;
    EXPECT_TRUE(comes_true([&] { return idle.trained.load() == kIdleWorkers; }));
    service.reset();
    is_gone = true;
  };
  idle.in_between = [&](ParameterService&) { EXPECT_TRUE(comes_true([&] { return is_gone.load(); })); };
  idle.run();
  EXPECT_GT(idle.calls[kIdlePlace], 0u);
  for (const auto& found : idle.homes) EXPECT_EQ(found, (std::vector<int>{1, 1, 2}));
  for (const auto& found : idle.values) {
    EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](float value) { return value < 0; }));
  }
}

// No worker makes a request meanwhile, so none of them is refused.
TEST_P(IdleServer, LeavesWhileNobodyCallsAndTakesNothingAfterwards) {
  Idle idle(GetParam());
  std::atomic<bool> has_left{false};
  idle.serve = [&](int place, auto& service) {
    EXPECT_TRUE(comes_true([&] { return idle.trained.load() == kIdleWorkers; }));
    if (place == kIdlePlace) {
      service->leave();
      EXPECT_TRUE(comes_true([&] { return service->stats().workers.empty(); }));
      EXPECT_TRUE(service->is_leaving());
      has_left = true;
    } else if (place == 0) {
      EXPECT_TRUE(comes_true([&] { return has_left.load(); }));
      service->leave();
      EXPECT_TRUE(comes_true([&] { return service->stats().workers.empty(); }));
    }
  };
  idle.in_between = [&](ParameterService&) { EXPECT_TRUE(comes_true([&] { return has_left.load(); })); };
  idle.run();
  idle.expect_all_applied_once();
  for (const auto& found : idle.homes) EXPECT_EQ(found, (std::vector<int>{2, 1, 2}));
}

TEST_P(IdleServer, MayVanishBeforeOneWithAShardDoes) {
  Idle idle(GetParam());
  idle.is_exact = false;
  std::atomic<int> gone{0};
  idle.serve = [&](int place, auto& service) {
    if (place == 2) return;
    EXPECT_TRUE(comes_true([&] { return idle.trained.load() == kIdleWorkers; }));
    EXPECT_TRUE(comes_true([&] { return place == kIdlePlace || gone.load() == 1; }));
    service.reset();
    ++gone;
  };
  idle.in_between = [&](ParameterService&) { EXPECT_TRUE(comes_true([&] { return gone.load() == 2; })); };
  idle.run();
  for (const auto& found : idle.homes) EXPECT_EQ(found, (std::vector<int>{2, 1, 2}));
}

// The copies of the other servers' shards lie there, and no worker calls it for that.
TEST(IdleBackup, IsNotCalledAndTakesOverWithTheStateOfTheRule) {
  Idle idle(Mode::kSync);
  std::atomic<bool> is_gone{false};
  std::atomic<uint64_t> calls{1};
  idle.change = [](ServiceSetup& setup) { setup.server.replicas = 1; };
  idle.serve = [&](int place, auto& service) {
    if (place == 2) return;
    EXPECT_TRUE(comes_true([&] { return idle.trained.load() == kIdleWorkers; }));
    if (place == kIdlePlace) {
      calls = service->stats().server.calls;
      return;
    }
    EXPECT_TRUE(comes_true([&] {
      const auto told = service->stats().server;
      return calls.load() == 0 && !told.copied.empty() && told.copied == told.versions;
    }));
    service.reset();
    is_gone = true;
  };
  std::vector<float> values(kIdleNumbers);
  idle.in_between = [&](ParameterService& service) {
    EXPECT_TRUE(comes_true([&] { return is_gone.load(); }));
    std::vector<float> pulled(kIdleNumbers);  // a push on its way to a server that dies is lost
    EXPECT_TRUE(comes_true([&] {
      return outcome(service, service.pull(pulled.data())).ok() && service.stats().homes[0] == kIdlePlace;
    }));
  };
  idle.run();
  idle.expect_all_applied_once();
}

}  // namespace
}  // namespace braid::testing
