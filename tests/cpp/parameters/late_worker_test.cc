// SPDX-License-Identifier: Apache-2.0
// A worker that comes late, when a server has ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kLateNumbers = 320;
// How long it looks for a server.
constexpr milliseconds kLooks{6'000};
constexpr milliseconds kLatestEnd{60'000};

template <class Condition>
void must_come_true(const Condition& condition) {
  const auto began = Clock::now();
  while (!condition() && Clock::now() < began + kLatestEnd) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(condition());
}

// How long the worker has still looked for a server that has ended, when it had joined one that lives.
milliseconds looked_after_joining(Mode mode) {
  std::atomic<bool> has_begun{false};
  std::atomic<bool> has_moved{false};
  std::atomic<bool> is_over{false};
  Clock::time_point began;
  Clock::time_point joined;
  Clock::time_point reached;
  at_all_places(4, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_alone(place, kLateNumbers, 1, 2, mode);
    setup.server.quorum = {.at_least = 1, .grace = milliseconds(10)};
    std::vector<float> values(kLateNumbers);
    if (place.rank == 3) {
      setup.member = 1;
      setup.is_late = true;
      setup.options.timeout = kLooks;
      must_come_true([&] { return has_moved.load(); });
      began = Clock::now();
      const auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      reached = Clock::now();
      EXPECT_TRUE(outcome(*service, service->pull(values.data())).ok());
      EXPECT_LT(values[0], 0);
      service->close(milliseconds(0), {});
      is_over = true;
      return;
    }
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    if (place.rank == 0) {
      const std::vector<float> update(kLateNumbers, 1.0f);
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
      while (!is_over.load()) {
        const auto push = service->push(update.data(), values.data(), momentum_table(kLateNumbers), 1, nullptr);
        ASSERT_TRUE(outcome(*service, push).ok());
        has_begun = true;
        const std::vector<int> homes = service->stats().homes;
        if (std::count(homes.begin(), homes.end(), 0) == std::ssize(homes)) has_moved = true;
      }
    } else if (place.rank == 1) {
      must_come_true([&] { return service->stats().workers.size() == 2 || is_over.load(); });
      joined = Clock::now();
      must_come_true([&] { return is_over.load(); });
    } else {
      must_come_true([&] { return has_begun.load(); });
      return service.reset();
    }
    service->close(milliseconds(20'000), {});
  });
  EXPECT_GE(reached - began, kLooks) << "it has looked for the server that has ended";
  return std::chrono::duration_cast<milliseconds>(reached - joined);
}

// Once it has joined a server, the workers of most modes wait for it.
TEST(LateWorker, JoinsNoServerBeforeItHasLookedForAll) { EXPECT_LT(looked_after_joining(Mode::kSsp), kLooks / 2); }

// Others wait for it no longer than the grace period. If all had settled before it joins, its first round would wait.
TEST(LateWorker, JoinsAtOnceWithAQuorum) { EXPECT_GT(looked_after_joining(Mode::kQuorum), kLooks / 2); }

}  // namespace
}  // namespace braid::testing
