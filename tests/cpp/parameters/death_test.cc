// SPDX-License-Identifier: Apache-2.0
// Members that vanish. They are threads, so one "dies" by ending its service without a word to its workers.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

class Death : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Death, ::testing::ValuesIn(wires()), wire_name);

// Three workers that are servers; member 2 vanishes in the middle. The others go on.
TEST_P(Death, OfAMemberMovesItsShard) {
  constexpr size_t kElements = 3000;
  std::atomic<bool> is_gone{false};
  std::atomic<int> begun{0};
  at_all_places(3, options(), [&](const Place& place) {
    auto service = must_create(setup_of(place, kElements));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements, 7.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    const std::vector<float> update(kElements, -1.0f);
    const auto step = [&] {
      return outcome(*service, service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr));
    };
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(step().ok());
    ++begun;
    while (begun.load() < 3) std::this_thread::yield();
    if (place.rank == 2) {
      service.reset();
      is_gone = true;
      return;
    }
    while (!is_gone.load()) ASSERT_TRUE(step().ok());
    for (int i = 0; i < 20; ++i) {
      const Status done = step();
      ASSERT_TRUE(done.ok()) << done.message();
      for (const float value : values) ASSERT_TRUE(std::isfinite(value) && value >= 7.0f);
    }
    EXPECT_EQ(service->stats().homes, (std::vector<int>{0, 1, 0}));
    service->close(milliseconds(20'000), {});
  });
}

TEST_P(Death, OfTheLastServerIsAnErrorAtOnce) {
  constexpr size_t kElements = 100;
  std::atomic<int> begun{0};
  at_all_places(2, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.servers = {1};
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ++begun;
    while (begun.load() < 2) std::this_thread::yield();
    if (place.rank == 1) return service.reset();
    const auto began = Clock::now();
    Status failed;
    while (failed.ok() && Clock::now() < began + milliseconds(20'000)) {
      failed = outcome(*service, service->pull(values.data()));
    }
    EXPECT_TRUE(says(failed, "no parameter server is left")) << failed.message();
    EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  });
}

}  // namespace
}  // namespace braid::testing
