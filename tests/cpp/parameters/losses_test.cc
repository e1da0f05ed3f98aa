// SPDX-License-Identifier: Apache-2.0
// How many updates are lost when servers vanish one after the other: workers count them, and never too few.
#include "parameters/losses.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

TEST(Losses, TellTheLeastVersionSinceAMove) {
  Losses losses;
  EXPECT_EQ(losses.least_since(0), Losses::kNone);
  losses.add(1, 8);
  losses.add(3, 20);
  losses.add(4, Losses::kNone);
  EXPECT_EQ(losses.least_since(0), 8u);
  EXPECT_EQ(losses.least_since(1), 20u);
  EXPECT_EQ(losses.least_since(2), 20u);
  EXPECT_EQ(losses.least_since(3), Losses::kNone);
  losses.add(5, 15);  // so 20 says nothing new
  EXPECT_EQ(losses.least_since(0), 8u);
  for (const uint64_t moves : {1, 3, 4}) EXPECT_EQ(losses.least_since(moves), 15u) << moves;
  losses.add(2, 30);  // of somebody who knows less: it counts for the last move
  EXPECT_EQ(losses.least_since(4), 15u);
  EXPECT_EQ(losses.least_since(5), Losses::kNone);
}

TEST(Losses, TravelAndNeverTellTooMuchWhenThereAreMany) {
  Losses losses;
  constexpr uint64_t kMany = 3 * Losses::kMost;
  for (uint64_t move = 1; move <= kMany; ++move) losses.add(move, 10 * move);
  std::array<float, Losses::kFloats> numbers{};
  losses.write(numbers.data());
  const Losses read = Losses::read(numbers.data());
  for (uint64_t move = 0; move < kMany; ++move) {
    EXPECT_EQ(read.least_since(move), losses.least_since(move));
    EXPECT_LE(read.least_since(move), 10 * (move + 1));
    if (move >= kMany - Losses::kMost + 1) EXPECT_EQ(read.least_since(move), 10 * (move + 1));
  }
  EXPECT_EQ(read.least_since(kMany), Losses::kNone);
}

// ---- One server that takes a lost shard over, and the calls of three workers

// Who has no values cannot bring any, whatever it knows. Of the others, the one that knows of more moves has the newer
// values: the shard's versions began anew with the last one.
TEST(TakingOver, ValuesOfALaterMoveAreNewer) {
  constexpr size_t kCount = 4;
  struct Offer {
    uint64_t has_values, moves, version;
  };
  const std::vector<Offer> offers = {{0, 3, 0}, {1, 2, 5}, {1, 1, 9}};
  ServerOptions options;
  options.rule = rule_from_text("add").value();
  DoorbellWord bell{};
  Server server(options, {{0, kCount}}, bell);
  for (int worker = 0; worker < 3; ++worker) ASSERT_TRUE(server.admit(worker, "").ok());
  const std::vector<float> values(kCount);
  const auto ask = [&](int worker, CallKind kind = CallKind::kAdopt) {
    const Offer& offer = offers[static_cast<size_t>(worker)];
    Job job;
    job.worker = worker;
    job.update = values.data();
    job.call.kind = kind;
    job.call.count = kCount;
    job.call.steps = offer.has_values;
    job.call.moves = offer.moves;
    job.call.base = offer.version;
    server.submit(job);
    EXPECT_TRUE(job.done);
    return job.answer;
  };
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(ask(worker, CallKind::kFind).verdict, Verdict::kWait);
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(ask(worker).verdict, Verdict::kWait);
  EXPECT_EQ(ask(0).verdict, Verdict::kWait);
  EXPECT_EQ(ask(2).verdict, Verdict::kWait);
  EXPECT_EQ(ask(1).verdict, Verdict::kSend);
  EXPECT_EQ(ask(1, CallKind::kInstall).verdict, Verdict::kDone);
  const Answer found = ask(2);
  EXPECT_EQ(found.verdict, Verdict::kDone);
  EXPECT_EQ(found.moves, 3u) << "the most that anybody knows";
  EXPECT_EQ(found.steps, 5u) << "updates up to here are left";
}

// ---- Two workers; three servers without one, of which the first has all numbers

constexpr size_t kLostNumbers = 64;
constexpr int kTrainer = 0, kSleeper = 1, kOfLost = 2;  // workers
constexpr milliseconds kLostLimit{20'000};

class LostParts : public ::testing::Test {
 protected:
  // `ends[place]`: what a server does once `go_on` says so. `work`: what a worker does.
  void run(const std::function<void(int, ParameterService&)>& work, const std::string& rule = "add") {
    at_all_places(kOfLost + 3, options_for(wires()[0]), [&](const Place& place) {
      ServiceSetup setup = setup_alone(place, kLostNumbers, kOfLost, 3, Mode::kAsync);
      setup.server.rule = rule_from_text(rule).value();
      setup.shares = {1, 0, 0};
      auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      if (place.rank < kOfLost) {
        work(place.rank, *service);
        ++finished_;
        await([&] { return finished_.load() == kOfLost; });
        return service->close(kLostLimit, {});
      }
      const int at = place.rank - kOfLost;
      await([&] { return ended_.load() > at || finished_.load() == kOfLost; });
      if (finished_.load() < kOfLost && leaves == at) {
        service->leave();
        await([&] { return service->stats().workers.empty() || finished_.load() == kOfLost; });
      } else if (finished_.load() < kOfLost) {
        service.reset();
        ++gone_;
        return;
      }
      service->close(kLostLimit, {});
    });
  }
  template <class Condition>
  static void await(const Condition& condition) {
    const auto began = Clock::now();
    while (!condition()) {
      ASSERT_LT(Clock::now(), began + kLostLimit);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  void push(ParameterService& service, int count, bool pulls = false) {
    const std::vector<float> update(kLostNumbers, 1.0f);
    std::vector<float>& values = values_.emplace_back(kLostNumbers);
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(outcome(service, service.push(update.data(), pulls ? values.data() : nullptr,
                                                table_of(kLostNumbers, 1), 1, nullptr))
                      .ok());
    }
  }
  void install(ParameterService& service) {
    const std::vector<float> zeros(kLostNumbers);
    ASSERT_TRUE(outcome(service, service.install(zeros.data())).ok());
  }
  float pull(ParameterService& service) {
    std::vector<float>& values = values_.emplace_back(kLostNumbers);
    EXPECT_TRUE(outcome(service, service.pull(values.data())).ok());
    return values[0];
  }
  // The next server vanishes, or begins to leave. REQUIRES: only one worker calls it.
  void end_one() {
    const int before = gone_.load();
    const bool waits = leaves != ended_.load();
    ++ended_;
    if (waits) await([&] { return gone_.load() > before; });
  }
  void meet(int stage) {
    ++met_;
    await([&] { return met_.load() >= stage * kOfLost; });
  }

  int leaves = -1;  // the place of the one that leaves in good order

 private:
  std::atomic<int> ended_{0}, gone_{0}, finished_{0}, met_{0};
  static thread_local std::deque<std::vector<float>> values_;  // a rescue may read them
};
thread_local std::deque<std::vector<float>> LostParts::values_;

// The sleeper makes no request while two servers end. Three of its updates nobody has seen.
TEST_F(LostParts, OfAWorkerThatSleepsWhileTwoServersVanish) {
  run([this](int worker, ParameterService& service) {
    if (worker == kSleeper) push(service, 2);
    if (worker == kTrainer) install(service);
    meet(1);
    if (worker == kTrainer) EXPECT_EQ(pull(service), 2);
    meet(2);
    if (worker == kSleeper) push(service, 3);
    meet(3);
    if (worker == kTrainer) {
      for (const int before : {2, 12}) {
        end_one();
        EXPECT_EQ(pull(service), before);
        push(service, 10, true);
      }
    }
    meet(4);
    EXPECT_EQ(pull(service), 22);
    EXPECT_EQ(service.stats().lost_parts, worker == kSleeper ? 3u : 0u);
    EXPECT_EQ(service.stats().homes[0], 2);
  });
}

TEST_F(LostParts, OfAWorkerThatSleepsWhileOneServerVanishesAndOneLeaves) {
  leaves = 1;
  run([this](int worker, ParameterService& service) {
    if (worker == kTrainer) {
      install(service);
      EXPECT_EQ(pull(service), 0);
    }
    meet(1);
    if (worker == kSleeper) push(service, 3);
    meet(2);
    if (worker == kTrainer) {
      end_one();
      EXPECT_EQ(pull(service), 0);
      push(service, 10, true);
      end_one();
      while (service.stats().homes[0] != 2) push(service, 1, true);
    }
    meet(3);
    EXPECT_GE(pull(service), 10);
    EXPECT_EQ(service.stats().lost_parts, worker == kSleeper ? 3u : 0u);
  });
}

// The sleeper has the newest values when the first server dies, so its updates are not lost.
TEST_F(LostParts, ASleeperBringsWhatItHas) {
  run([this](int worker, ParameterService& service) {
    if (worker == kTrainer) {
      install(service);
      EXPECT_EQ(pull(service), 0);
    }
    meet(1);
    if (worker == kSleeper) push(service, 5, true);
    meet(2);
    if (worker == kTrainer) {
      end_one();
      EXPECT_EQ(pull(service), 5);
      push(service, 2, true);
      push(service, 1);
      end_one();
    }
    meet(3);
    EXPECT_EQ(pull(service), 7);
    EXPECT_EQ(service.stats().lost_parts, worker == kSleeper ? 0u : 1u);
  });
}

TEST_F(LostParts, AreCountedBeyondThoseThatAreNoted) {
  constexpr int kUnseen = static_cast<int>(ParameterService::kMostNoted) + 100;
  run([this](int worker, ParameterService& service) {
    if (worker == kTrainer) install(service);
    meet(1);
    if (worker == kSleeper) push(service, 50);
    meet(2);
    if (worker == kTrainer) EXPECT_EQ(pull(service), 50);
    meet(3);
    if (worker == kSleeper) push(service, kUnseen);
    meet(4);
    if (worker == kTrainer) end_one();
    meet(5);
    EXPECT_EQ(pull(service), 50);
    EXPECT_EQ(service.stats().lost_parts, worker == kSleeper ? kUnseen : 0u);
    meet(6);
    if (worker == kSleeper) push(service, 1);
    if (worker == kSleeper) end_one();
    meet(7);
    EXPECT_EQ(pull(service), 50);
    EXPECT_EQ(service.stats().lost_parts, worker == kSleeper ? kUnseen + 1u : 0u) << "each counts once";
  });
}

}  // namespace
}  // namespace braid::testing
