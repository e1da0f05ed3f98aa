// SPDX-License-Identifier: Apache-2.0
// Members that vanish. They are threads, so one "dies" by ending its service without a word to its workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
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

// Worker 2 pushes and does not pull. Of its updates, the dead server's successor gets those that worker 0 has pulled.
TEST_P(Death, LosesAnsweredPushesAndTheirWorkerCountsThem) {
  constexpr size_t kElements = 100;
  constexpr int kPulled = 2, kUnseen = 3, kAfter = 4;
  std::atomic<int> stage{0};
  const auto meet = [&stage](int count) {
    ++stage;
    while (stage.load() < count) std::this_thread::yield();
  };
  at_all_places(3, options(), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.servers = {1, 0};
    setup.shares = {1, 0};
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    const std::vector<float> update(kElements, -1.0f);
    const auto push = [&](int count) {
      for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(
            outcome(*service, service->push(update.data(), nullptr, table_of(kElements, 1), 1, nullptr)).ok());
      }
    };
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    meet(3);
    if (place.rank == 2) push(kPulled);
    meet(6);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    }
    meet(9);
    if (place.rank == 2) push(kUnseen);
    meet(12);
    if (place.rank == 1) {
      service.reset();
      ++stage;
      return;
    }
    meet(15);
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    EXPECT_EQ(values, std::vector<float>(kElements, kPulled));
    EXPECT_EQ(service->stats().lost_parts, place.rank == 2 ? kUnseen : 0U);
    meet(17);
    if (place.rank == 2) push(kAfter);
    meet(19);
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    EXPECT_EQ(values, std::vector<float>(kElements, kPulled + kAfter));
    EXPECT_EQ(service->stats().lost_parts, place.rank == 2 ? kUnseen : 0U);
    service->close(milliseconds(20'000), {});
  });
}

// Member 1 has the only shard, and `end` ends it. Returns what member 0 hears then.
Status heard_of_the_last_server(const Options& options,
                                const std::function<void(std::unique_ptr<ParameterService>&)>& end) {
  constexpr size_t kElements = 100;
  std::atomic<int> begun{0};
  Status failed;
  at_all_places(2, options, [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.servers = {1};
    setup.who = "rank " + std::to_string(10 + place.rank);
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    ++begun;
    while (begun.load() < 2) std::this_thread::yield();
    if (place.rank == 1) return end(service);
    const auto began = Clock::now();
    while (failed.ok() && Clock::now() < began + milliseconds(20'000)) {
      failed = outcome(*service, service->pull(values.data()));
    }
    EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  });
  return failed;
}

TEST_P(Death, OfTheLastServerIsAnErrorAtOnce) {
  const Status heard = heard_of_the_last_server(options(), [](auto& service) { service.reset(); });
  EXPECT_TRUE(says(heard, "no parameter server is left")) << heard.message();
}

TEST_P(Death, OfTheLastServerSaysWhoItWasAndWhy) {
  const Status heard = heard_of_the_last_server(
      options(), [](auto& service) { service->close(milliseconds(0), {}, "rank 12 is lost"); });
  EXPECT_TRUE(says(heard, "the server of rank 11 on ")) << heard.message();
  EXPECT_TRUE(says(heard, "rank 12 is lost")) << heard.message();
}

// Member 1 speaks for ranks 11 and 12. It ends, or is told to end because another rank died with it.
TEST_P(Death, IsToldWithTheRanksTheHostAndTheReason) {
  constexpr size_t kElements = 100;
  const std::string name = "rank 11 (for ranks 11 and 12)";
  for (const std::string why : {"", "the group of ranks 11 and 12 ends: rank 12 is lost"}) {
    std::atomic<int> begun{0};
    at_all_places(3, options(), [&](const Place& place) {
      ServiceSetup setup = setup_of(place, kElements);
      if (place.rank == 1) setup.who = name;
      auto service = must_create(std::move(setup));
      ASSERT_NE(service, nullptr);
      std::vector<float> values(kElements);
      if (place.rank == 0) {
        ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
      }
      ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
      ++begun;
      while (begun.load() < 3) std::this_thread::yield();
      if (place.rank == 1) return service->close(milliseconds(0), {}, why);
      std::vector<std::string> lost;
      const auto began = Clock::now();
      const auto has = [&lost](const std::string& begin) {
        return std::any_of(lost.begin(), lost.end(), [&](const auto& text) { return text.starts_with(begin); });
      };
      // One that leaves of its own will is no loss, as a worker. Its shard has to move, though.
      const auto all_known = [&] { return has("the server of " + name + " on ") && (why.empty() || has(name)); };
      while (!all_known() && Clock::now() < began + milliseconds(20'000)) {
        ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
        lost = service->stats().lost_members;
      }
      EXPECT_TRUE(all_known()) << ::testing::PrintToString(lost);
      EXPECT_EQ(lost.size(), why.empty() ? 1u : 2u) << ::testing::PrintToString(lost);
      for (const std::string& text : lost) {
        EXPECT_TRUE(text.find("(pid ") != std::string::npos) << text;
        EXPECT_TRUE(text.find(why) != std::string::npos) << text;
        for (const char* in_the_pair : {"rank 0 ", "rank 0:", "rank 1 ", "rank 1:"}) {
          EXPECT_TRUE(text.find(in_the_pair) == std::string::npos) << text;
        }
      }
      service->close(milliseconds(20'000), {});
    });
  }
}

}  // namespace
}  // namespace braid::testing
