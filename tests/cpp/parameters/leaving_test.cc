// SPDX-License-Identifier: Apache-2.0
// Servers that leave in good order. All updates are equal, so the values say how many were applied, and in which state.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kNumbers = 200;
constexpr int kTrainers = 3;
constexpr int kUpdates = 60;

constexpr size_t kUnderWay = 3;  // requests of a worker at a time

class Leaving : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Leaving,
                         ::testing::Values(Mode::kAsync, Mode::kRoundRobin, Mode::kSsp, Mode::kSync));

// Trains, tells how far it is, and returns the values at the end.
std::vector<float> train(const Place& place, ParameterService& service, std::atomic<int>& steps) {
  std::deque<std::vector<float>> values(kUnderWay + 1, std::vector<float>(kNumbers));
  const std::vector<float> update(kNumbers, 1.0f);
  if (place.rank == 0) {
    EXPECT_TRUE(outcome(service, service.install(values[0].data())).ok());
  }
  std::deque<ParameterService::Request> open;
  const auto finish = [&] {
    const Status done = outcome(service, open.front());
    EXPECT_TRUE(done.ok()) << done.message();
    open.pop_front();
    ++steps;
  };
  for (size_t i = 0; i < kUpdates; ++i) {
    open.push_back(service.push(update.data(), values[i % values.size()].data(),
                                momentum_table(kNumbers, service.state_vectors() > 0), 1, nullptr));
    if (open.size() >= kUnderWay) finish();
  }
  while (!open.empty()) finish();
  while (steps.load() < kTrainers * kUpdates) std::this_thread::sleep_for(milliseconds(1));
  const Status pulled = outcome(service, service.pull(values[0].data()));
  EXPECT_TRUE(pulled.ok()) << pulled.message();
  EXPECT_EQ(service.stats().lost_parts, 0U);
  return values[0];
}

void must_end(ParameterService& server) {
  const auto began = Clock::now();
  while (!server.stats().workers.empty() && Clock::now() < began + milliseconds(20'000)) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(server.stats().workers.empty());
}

TEST_P(Leaving, NothingIsLostAndNothingAppliedTwice) {
  const Mode mode = GetParam();
  std::atomic<int> steps{0};
  std::vector<std::vector<float>> found(kTrainers);
  at_all_places(kTrainers + 3, options_for(wires()[0]), [&](const Place& place) {
    const auto service = must_create(setup_alone(place, kNumbers, kTrainers, 3, mode));
    ASSERT_NE(service, nullptr);
    if (place.rank < kTrainers) {
      found[static_cast<size_t>(place.rank)] = train(place, *service, steps);
    } else if (place.rank > kTrainers) {  // two leave at the same moment
      while (steps.load() < kUpdates / 2) std::this_thread::yield();
      service->leave();
      must_end(*service);
      EXPECT_TRUE(service->is_leaving());
    }
    service->close(milliseconds(20'000), {});
  });
  const float expected = after_momentum(mode == Mode::kSync ? kUpdates : kTrainers * kUpdates);
  for (const auto& values : found) EXPECT_EQ(values, std::vector<float>(kNumbers, expected));
}

TEST_P(Leaving, TheLastServerStays) {
  const Mode mode = GetParam();
  std::atomic<int> steps{0};
  std::atomic<int> leavers{0};
  std::vector<std::vector<float>> found(kTrainers);
  at_all_places(kTrainers + 2, options_for(wires()[0]), [&](const Place& place) {
    const auto service = must_create(setup_alone(place, kNumbers, kTrainers, 2, mode));
    ASSERT_NE(service, nullptr);
    if (place.rank < kTrainers) {
      found[static_cast<size_t>(place.rank)] = train(place, *service, steps);
    } else {
      while (steps.load() < kUpdates) std::this_thread::yield();
      service->leave();
      must_end(*service);
      leavers += service->is_leaving() ? 1 : 0;
    }
    service->close(milliseconds(20'000), {});
  });
  const float expected = after_momentum(mode == Mode::kSync ? kUpdates : kTrainers * kUpdates);
  for (const auto& values : found) EXPECT_EQ(values, std::vector<float>(kNumbers, expected));
  EXPECT_GE(leavers, 1) << "one stays, the other one leaves";
}

// Two of three servers leave at the same moment, while workers train with `change` made to their setups.
std::vector<std::vector<float>> train_while_two_leave(const std::function<void(ServiceSetup&)>& change) {
  std::atomic<int> steps{0};
  std::vector<std::vector<float>> found(kTrainers);
  at_all_places(kTrainers + 3, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_alone(place, kNumbers, kTrainers, 3, Mode::kAsync);
    change(setup);
    const auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    if (place.rank < kTrainers) {
      auto& values = found[static_cast<size_t>(place.rank)];
      values = train(place, *service, steps);
      const auto began = Clock::now();
      while (service->stats().homes != std::vector<int>{0, 0, 0}) {
        ASSERT_LT(Clock::now(), began + milliseconds(20'000));
        ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
      }
      ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    } else if (place.rank > kTrainers) {
      while (steps.load() < kUpdates) std::this_thread::yield();
      service->leave();
      must_end(*service);
    }
    service->close(milliseconds(20'000), {});
  });
  return found;
}

// A rank that is done before the others takes nothing with it: its shard goes on with its momentum.
TEST(LeavingServers, OfARankThatEndsFirstHandTheirShardsOver) {
  std::atomic<int> steps{0};
  std::atomic<bool> has_left{false};
  constexpr int kHalf = 10;
  at_all_places(2, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kNumbers, "sgd:momentum");
    setup.servers = {1, 0};
    setup.shares = {1, 0};
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kNumbers);
    const std::vector<float> update(kNumbers, 1.0f);
    const auto train = [&](int pushes) {
      for (int i = 0; i < pushes; ++i) {
        const auto push = service->push(update.data(), values.data(), momentum_table(kNumbers), 1, nullptr);
        const Status done = outcome(*service, push);
        ASSERT_TRUE(done.ok()) << done.message();
        ++steps;
      }
    };
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    train(kHalf);
    while (steps.load() < 2 * kHalf) std::this_thread::sleep_for(milliseconds(1));
    if (place.rank == 1) {
      service->close(milliseconds(1), {});
      has_left = true;
      return;
    }
    while (!has_left.load()) train(1);
    train(kHalf);
    EXPECT_EQ(values, std::vector<float>(kNumbers, after_momentum(steps.load())));
    EXPECT_EQ(service->stats().homes, (std::vector<int>{1, 1}));
    EXPECT_EQ(service->stats().lost_parts, 0u);
    service->close(milliseconds(20'000), {});
  });
}

// One worker takes all eight shards of a server to another one.
TEST(LeavingServers, GiveAWorkerOneShardToCarryAtATime) {
  constexpr size_t kElements = 64'000;
  constexpr size_t kShards = 8;
  std::atomic<bool> is_full{false};
  std::atomic<bool> has_left{false};
  at_all_places(3, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_alone(place, kElements, 1, 2, Mode::kAsync);
    setup.least_piece = kElements / 2 / kShards;
    const auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    if (place.rank == 0) {
      std::vector<float> values(kElements);
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
      is_full = true;
      size_t most = 0;
      std::thread watcher([&] {
        while (!has_left.load()) {
          most = std::max(most, service->stats().worker_bytes);
          std::this_thread::yield();
        }
      });
      while (!has_left.load()) EXPECT_TRUE(outcome(*service, service->pull(values.data())).ok());
      watcher.join();
      const size_t shard_bytes = 2 * kElements / 2 / kShards * sizeof(float);  // with momentum
      EXPECT_GE(most, shard_bytes);
      EXPECT_LT(most, 2 * shard_bytes);
      EXPECT_EQ(service->stats().homes, std::vector<int>(2 * kShards, 1));
    } else if (place.rank == 1) {
      while (!is_full.load()) std::this_thread::yield();
      service->leave();
      must_end(*service);
      has_left = true;
    }
    service->close(milliseconds(20'000), {});
  });
}

// int8 carries equal numbers exactly, so nothing is left for a residual. A refused update may travel together with the
// next one, which only a rule without momentum does not notice.
TEST(LeavingServers, RefuseCodedUpdatesThatAreRepeatedOnce) {
  const auto found = train_while_two_leave([](ServiceSetup& setup) {
    setup.server.rule = rule_from_text("sgd").value();
    setup.server.coding = {codec_from_text("int8").value(), codec_from_text("int8").value()};
  });
  for (const auto& values : found) {
    for (const float value : values) ASSERT_NEAR(value, -0.125f * kTrainers * kUpdates, 1e-3);
  }
}

TEST(LeavingServers, TakeShardsOutOfMappedMemory) {
  const auto found = train_while_two_leave([](ServiceSetup& setup) {
    setup.server.rule = rule_from_text("sgd").value();
    setup.server.consistency = Consistency::kRelaxed;
  });
  for (const auto& values : found) {
    for (const float value : values) {
      ASSERT_LT(value, 0);  // updates that meet may be lost, so no more is known
      ASSERT_GE(value, -0.125f * kTrainers * kUpdates);
    }
  }
}

// A server begins to leave, and vanishes before all workers have heard where its shard is.
TEST(LeavingServers, MayVanishWhileTheyHandOver) {
  constexpr int kTimes = 6;
  for (int time = 0; time < kTimes; ++time) {
    for (const Mode mode : {Mode::kAsync, Mode::kSsp, Mode::kSync}) {
      std::atomic<int> steps{0};
      std::atomic<int> trained{0};
      std::atomic<uint64_t> lost{0};
      at_all_places(kTrainers + 3, options_for(wires()[0]), [&](const Place& place) {
        auto service = must_create(setup_alone(place, kNumbers, kTrainers, 3, mode));
        ASSERT_NE(service, nullptr);
        if (place.rank == kTrainers + 1) {
          while (steps.load() < kUpdates / 2) std::this_thread::yield();
          service->leave();
          std::this_thread::sleep_for(std::chrono::microseconds(time * 300));
          return service.reset();
        }
        if (place.rank < kTrainers) {
          std::vector<float> values(kNumbers);
          const std::vector<float> update(kNumbers, 1.0f);
          if (place.rank == 0) {
            ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
          }
          std::vector<uint64_t> versions(3);
          for (int i = 0; i < kUpdates; ++i) {
            const auto request =
                service->push(update.data(), values.data(), momentum_table(kNumbers, true), 1, nullptr);
            const Status done = outcome(*service, request);
            ASSERT_TRUE(done.ok()) << done.message() << "; time " << time;
            for (size_t shard = 0; shard < versions.size(); ++shard) {
              ASSERT_GE(request->versions()[shard], versions[shard])
                  << "shard " << shard << ", time " << time << ", mode " << static_cast<int>(mode) << ", update "
                  << i << ", lost " << service->stats().lost_parts << ", home " << service->stats().homes[shard];
            }
            versions = request->versions();
            ++steps;
          }
          const auto began = Clock::now();
          while (service->stats().homes[1] == 1) {  // the server may have taken its time to leave
            ASSERT_LT(Clock::now(), began + milliseconds(20'000));
            ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
          }
          ASSERT_TRUE(outcome(*service, service->rest()).ok());  // others may have lost fewer pushes
          lost += service->stats().lost_parts;
          ++trained;
          const auto ended = Clock::now();
          while (trained.load() < kTrainers) {
            ASSERT_LT(Clock::now(), ended + milliseconds(20'000)) << "another worker has failed";
            std::this_thread::yield();
          }
          const auto last = service->pull(values.data());
          ASSERT_TRUE(outcome(*service, last).ok());
          const auto most = static_cast<uint64_t>(mode == Mode::kSync ? kUpdates : kTrainers * kUpdates);
          uint64_t missing = 0;
          for (const uint64_t version : last->versions()) {
            ASSERT_LE(version, most) << "nothing is applied twice";
            missing += most - version;
          }
          ASSERT_LE(missing, lost.load()) << "time " << time;
          // Of one shard: what was under way, and what was applied that no other worker has seen.
          ASSERT_LE(lost.load(), 2u * kTrainers) << "time " << time;
        }
        service->close(milliseconds(20'000), {});
      });
    }
  }
}

}  // namespace
}  // namespace braid::testing
