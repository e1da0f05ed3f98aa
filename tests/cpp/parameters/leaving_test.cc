// SPDX-License-Identifier: Apache-2.0
// Servers that leave in good order. All updates are equal, so the values say how many were applied, and in which state.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kElements = 200;
constexpr int kWorkers = 3;
constexpr int kSteps = 60;

// Requests of a worker at a time. Where workers wait for each other, more than one may block the calls behind it.
size_t under_way(Mode mode) { return mode == Mode::kAsync ? 3 : 1; }

class Leaving : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Leaving,
                         ::testing::Values(Mode::kAsync, Mode::kRoundRobin, Mode::kSsp, Mode::kSync));

// Places after the workers' are servers without a worker.
ServiceSetup alone(const Place& place, int servers, Mode mode) {
  ServiceSetup setup = setup_of(place, kElements, "sgd:momentum");
  setup.workers = kWorkers;
  if (place.rank >= kWorkers) setup.member = kFirstAlone + place.rank - kWorkers;
  setup.servers.clear();
  for (int i = 0; i < servers; ++i) setup.servers.push_back(kFirstAlone + i);
  setup.server.mode = mode;
  setup.server.staleness = 2;
  return setup;
}

Table numbers() {
  RuleNumbers row = with_rate(0.125);
  row.momentum = 0.5;
  return {{kElements, row}};
}

float after(int updates) {
  float value = 0;
  float momentum = 0;
  for (int i = 0; i < updates; ++i) {
    momentum = 0.5f * momentum + 1.0f;
    value -= 0.125f * momentum;
  }
  return value;
}

// Trains, tells how far it is, and returns the values at the end.
std::vector<float> train(const Place& place, ParameterService& service, Mode mode, std::atomic<int>& steps) {
  std::deque<std::vector<float>> values(under_way(mode) + 1, std::vector<float>(kElements));
  const std::vector<float> update(kElements, 1.0f);
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
  for (size_t i = 0; i < kSteps; ++i) {
    open.push_back(service.push(update.data(), values[i % values.size()].data(), numbers(), 1, nullptr));
    if (open.size() >= under_way(mode)) finish();
  }
  while (!open.empty()) finish();
  while (steps.load() < kWorkers * kSteps) std::this_thread::sleep_for(milliseconds(1));
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
  std::vector<std::vector<float>> found(kWorkers);
  at_all_places(kWorkers + 3, options_for(wires()[0]), [&](const Place& place) {
    const auto service = must_create(alone(place, 3, mode));
    ASSERT_NE(service, nullptr);
    if (place.rank < kWorkers) {
      found[static_cast<size_t>(place.rank)] = train(place, *service, mode, steps);
    } else if (place.rank > kWorkers) {  // two leave, one soon after the other
      const int at = place.rank == kWorkers + 1 ? kSteps / 2 : kSteps;
      while (steps.load() < at) std::this_thread::yield();
      service->leave();
      must_end(*service);
      EXPECT_TRUE(service->is_leaving());
    }
    service->close(milliseconds(20'000), {});
  });
  const float expected = after(mode == Mode::kSync ? kSteps : kWorkers * kSteps);
  for (const auto& values : found) EXPECT_EQ(values, std::vector<float>(kElements, expected));
}

TEST_P(Leaving, TheLastServerStays) {
  const Mode mode = GetParam();
  std::atomic<int> steps{0};
  std::vector<std::vector<float>> found(kWorkers);
  at_all_places(kWorkers + 2, options_for(wires()[0]), [&](const Place& place) {
    const auto service = must_create(alone(place, 2, mode));
    ASSERT_NE(service, nullptr);
    if (place.rank < kWorkers) {
      found[static_cast<size_t>(place.rank)] = train(place, *service, mode, steps);
    } else {  // both want to leave at once
      while (steps.load() < kSteps) std::this_thread::yield();
      service->leave();
      must_end(*service);
    }
    service->close(milliseconds(20'000), {});
  });
  const float expected = after(mode == Mode::kSync ? kSteps : kWorkers * kSteps);
  for (const auto& values : found) EXPECT_EQ(values, std::vector<float>(kElements, expected));
}

}  // namespace
}  // namespace braid::testing
