// SPDX-License-Identifier: Apache-2.0
// Everything that can be planned is right: proved by the verifier, computed by an interpreter, kept by the text
// form.
#include <gtest/gtest.h>

#include <chrono>

#include "schedule/text.h"
#include "support/every_algorithm.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid {
namespace {

using testing::fault_of;
using testing::for_every_algorithm;
using testing::one_to;

std::string title(const Algorithm& algorithm, const Collective& c) {
  return std::string(name_of(c.kind)) + "/" + std::string(algorithm.name) + " ranks=" + std::to_string(c.ranks) +
         " root=" + std::to_string(c.root);
}

Schedule drawn(const Algorithm& algorithm, const Collective& collective, const PlanOptions& options = {}) {
  Result<Schedule> schedule = algorithm.plan(collective, options);
  EXPECT_TRUE(schedule.ok()) << title(algorithm, collective) << ": " << schedule.status().message();
  return schedule.ok() ? schedule.value() : Schedule();
}

TEST(Families, AreVerifiedForAllWorldSizes) {
  std::vector<int> sizes = one_to(17);
  sizes.insert(sizes.end(), {31, 32, 61, 64});
  for_every_algorithm(sizes, [](const Algorithm& algorithm, const Collective& collective) {
    Result<VerifiedSchedule> verified = verify(drawn(algorithm, collective));
    EXPECT_TRUE(verified.ok()) << title(algorithm, collective) << ": " << verified.status().message();
  });
}

TEST(Families, ComputeWhatTheyPromise) {
  for_every_algorithm(one_to(13), [](const Algorithm& algorithm, const Collective& collective) {
    EXPECT_EQ(fault_of(drawn(algorithm, collective)), "") << title(algorithm, collective);
  });
}

TEST(Families, KeepTheirTextForm) {
  std::vector<int> sizes = one_to(17);
  sizes.insert(sizes.end(), {31, 64});
  for_every_algorithm(sizes, [](const Algorithm& algorithm, const Collective& collective) {
    Schedule schedule = drawn(algorithm, collective);
    Result<Schedule> again = schedule_from_text(to_text(schedule));
    ASSERT_TRUE(again.ok()) << title(algorithm, collective) << ": " << again.status().message();
    EXPECT_EQ(again.value(), schedule) << title(algorithm, collective);
  });
}

TEST(Families, AreNamedOnceAndFound) {
  for_every_algorithm({1}, [](const Algorithm& algorithm, const Collective& collective) {
    EXPECT_EQ(find_algorithm(algorithm.kind, algorithm.name), &algorithm);
    EXPECT_EQ(drawn(algorithm, collective).algorithm, algorithm.name);
  });
  EXPECT_EQ(find_algorithm(CollectiveKind::kGather, "ring"), nullptr);
}

TEST(Families, ExistForEveryCollective) {
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    EXPECT_FALSE(algorithms(static_cast<CollectiveKind>(kind)).empty());
  }
}

TEST(Families, RefuseACollectiveThatCannotBe) {
  for_every_algorithm({1}, [](const Algorithm& algorithm, const Collective& collective) {
    for (Collective wrong : {Collective{collective.kind, 0, 0}, Collective{collective.kind, 4, 4},
                             Collective{collective.kind, 1 << 20, 0}, Collective{collective.kind, 4, -1}}) {
      EXPECT_FALSE(algorithm.supports(wrong));
      EXPECT_EQ(algorithm.plan(wrong, {}).status().code(), Code::kInvalidArgument);
    }
  });
}

TEST(Direct, TakesAnyShares) {
  const Algorithm& direct = *find_algorithm(CollectiveKind::kAllReduce, "direct");
  for (const auto& shares :
       std::vector<std::vector<uint64_t>>{{1, 2, 3}, {0, 1, 0}, {5, 0, 5}, {1u << 31, 7, 1}}) {
    Schedule schedule = drawn(direct, {CollectiveKind::kAllReduce, 3, 0}, {shares, {}});
    EXPECT_EQ(schedule.shares, shares);
    EXPECT_TRUE(verify(schedule).ok());
    EXPECT_EQ(fault_of(schedule), "");
  }
}

TEST(Direct, RefusesSharesOfAnotherWorldSize) {
  const Algorithm& direct = *find_algorithm(CollectiveKind::kAllReduce, "direct");
  Status status = direct.plan({CollectiveKind::kAllReduce, 3, 0}, {{1, 2}, {}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("2 shares for 3 ranks"), std::string::npos) << status.message();
}

TEST(Families, RefuseSharesTheyWouldIgnore) {
  for_every_algorithm({3}, [](const Algorithm& algorithm, const Collective& collective) {
    EXPECT_EQ(algorithm.plan(collective, {{1, 2, 3}, {}}).ok(), algorithm.takes_shares)
        << title(algorithm, collective);
  });
}

TEST(Verifier, IsFastEnoughForEveryStart) {
  using Clock = std::chrono::steady_clock;
  const Algorithm& algorithm = *find_algorithm(CollectiveKind::kAllToAll, "direct");
  Schedule schedule = drawn(algorithm, {CollectiveKind::kAllToAll, 64, 0});
  Clock::time_point start = Clock::now();
  EXPECT_TRUE(verify(std::move(schedule)).ok());
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 10.0);  // 0.01 s, but sanitizers are slow
}

}  // namespace
}  // namespace braid
