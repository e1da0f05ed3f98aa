// SPDX-License-Identifier: Apache-2.0
// Everything that can be planned is right: proved by the verifier, computed by an interpreter, kept by the text
// form.
#include <gtest/gtest.h>

#include <chrono>

#include "schedule/text.h"
#include "support/every_family.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid {
namespace {

using testing::fault_of;
using testing::for_every_family;
using testing::one_to;

std::string title(const Family& family, const Collective& c) {
  return std::string(name_of(c.kind)) + "/" + std::string(family.name) + " ranks=" + std::to_string(c.ranks) +
         " root=" + std::to_string(c.root);
}

Schedule drawn(const Family& family, const Collective& collective, const PlanOptions& options = {}) {
  Result<Schedule> schedule = family.plan(collective, options);
  EXPECT_TRUE(schedule.ok()) << title(family, collective) << ": " << schedule.status().message();
  return schedule.ok() ? schedule.value() : Schedule();
}

TEST(Families, AreVerifiedForAllWorldSizes) {
  std::vector<int> sizes = one_to(17);
  sizes.insert(sizes.end(), {31, 32, 61, 64});
  for_every_family(sizes, [](const Family& family, const Collective& collective) {
    Result<VerifiedSchedule> verified = verify(drawn(family, collective));
    EXPECT_TRUE(verified.ok()) << title(family, collective) << ": " << verified.status().message();
  });
}

TEST(Families, ComputeWhatTheyPromise) {
  for_every_family(one_to(13), [](const Family& family, const Collective& collective) {
    EXPECT_EQ(fault_of(drawn(family, collective)), "") << title(family, collective);
  });
}

TEST(Families, KeepTheirTextForm) {
  std::vector<int> sizes = one_to(17);
  sizes.insert(sizes.end(), {31, 64});
  for_every_family(sizes, [](const Family& family, const Collective& collective) {
    Schedule schedule = drawn(family, collective);
    Result<Schedule> again = schedule_from_text(to_text(schedule));
    ASSERT_TRUE(again.ok()) << title(family, collective) << ": " << again.status().message();
    EXPECT_EQ(again.value(), schedule) << title(family, collective);
  });
}

TEST(Families, AreNamedOnceAndFound) {
  for_every_family({1}, [](const Family& family, const Collective& collective) {
    EXPECT_EQ(find_family(family.kind, family.name), &family);
    EXPECT_EQ(drawn(family, collective).family, family.name);
  });
  EXPECT_EQ(find_family(CollectiveKind::kGather, "ring"), nullptr);
}

TEST(Families, ExistForEveryCollective) {
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    EXPECT_FALSE(families(static_cast<CollectiveKind>(kind)).empty());
  }
}

TEST(Families, RefuseACollectiveThatCannotBe) {
  for_every_family({1}, [](const Family& family, const Collective& collective) {
    for (Collective wrong : {Collective{collective.kind, 0, 0}, Collective{collective.kind, 4, 4},
                             Collective{collective.kind, 1 << 20, 0}, Collective{collective.kind, 4, -1}}) {
      EXPECT_FALSE(family.supports(wrong));
      EXPECT_EQ(family.plan(wrong, {}).status().code(), Code::kInvalidArgument);
    }
  });
}

TEST(Direct, TakesAnyShares) {
  const Family& direct = *find_family(CollectiveKind::kAllReduce, "direct");
  for (const auto& shares :
       std::vector<std::vector<uint64_t>>{{1, 2, 3}, {0, 1, 0}, {5, 0, 5}, {1u << 31, 7, 1}}) {
    Schedule schedule = drawn(direct, {CollectiveKind::kAllReduce, 3, 0}, {shares, {}});
    EXPECT_EQ(schedule.shares, shares);
    EXPECT_TRUE(verify(schedule).ok());
    EXPECT_EQ(fault_of(schedule), "");
  }
}

TEST(Direct, RefusesSharesOfAnotherWorldSize) {
  const Family& direct = *find_family(CollectiveKind::kAllReduce, "direct");
  Status status = direct.plan({CollectiveKind::kAllReduce, 3, 0}, {{1, 2}, {}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("2 shares for 3 ranks"), std::string::npos) << status.message();
}

TEST(Families, RefuseSharesTheyWouldIgnore) {
  for_every_family({3}, [](const Family& family, const Collective& collective) {
    EXPECT_EQ(family.plan(collective, {{1, 2, 3}, {}}).ok(), family.takes_shares) << title(family, collective);
  });
}

TEST(Verifier, IsFastEnoughForEveryStart) {
  using Clock = std::chrono::steady_clock;
  const Family& family = *find_family(CollectiveKind::kAllToAll, "direct");
  Schedule schedule = drawn(family, {CollectiveKind::kAllToAll, 64, 0});
  Clock::time_point start = Clock::now();
  EXPECT_TRUE(verify(std::move(schedule)).ok());
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 2.0);  // 0.01 s, but sanitizers are slow
}

}  // namespace
}  // namespace braid
