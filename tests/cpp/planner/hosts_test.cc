// SPDX-License-Identifier: Apache-2.0
// Everything that can be planned is right wherever the ranks are.
#include "planner/hosts.h"

#include <gtest/gtest.h>

#include "schedule/text.h"
#include "support/every_algorithm.h"
#include "support/layouts.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid {
namespace {

using testing::drawn_with;
using testing::fault_of;
using testing::for_every_algorithm;
using testing::layouts;
using testing::one_to;

// Calls check(schedule, options, title) for all algorithms, world sizes and layouts.
template <class Check>
void for_every_layout(const std::vector<int>& sizes, const Check& check) {
  for_every_algorithm(sizes, [&](const Algorithm& algorithm, const Collective& collective) {
    for (const std::vector<int>& hosts : layouts(collective.ranks)) {
      PlanOptions options{{}, hosts};
      std::string title = std::string(name_of(algorithm.kind)) + "/" + std::string(algorithm.name) +
                          " root=" + std::to_string(collective.root) + testing::text_of(hosts);
      check(drawn_with(algorithm, collective, options), title);
    }
  });
}

TEST(EveryLayout, IsVerified) {
  std::vector<int> sizes = one_to(8);
  sizes.insert(sizes.end(), {11, 13, 16, 17});
  for_every_layout(sizes, [](const Schedule& schedule, const std::string& title) {
    Result<VerifiedSchedule> verified = verify(schedule);
    EXPECT_TRUE(verified.ok()) << title << ": " << verified.status().message();
  });
}

TEST(EveryLayout, ComputesWhatItPromises) {
  for_every_layout(one_to(9), [](const Schedule& schedule, const std::string& title) {
    EXPECT_EQ(fault_of(schedule), "") << title;
  });
}

TEST(EveryLayout, KeepsItsTextForm) {
  for_every_layout(one_to(9), [](const Schedule& schedule, const std::string& title) {
    Result<Schedule> again = schedule_from_text(to_text(schedule));
    ASSERT_TRUE(again.ok()) << title << ": " << again.status().message();
    EXPECT_EQ(again.value(), schedule) << title;
  });
}

TEST(Hosts, WrongOnesAreRefusedInWords) {
  for_every_algorithm({4}, [](const Algorithm& algorithm, const Collective& collective) {
    for (const auto& [hosts, words] : std::vector<std::pair<std::vector<int>, std::string>>{
             {{0, 0, 1}, "3 hosts for 4 ranks"},
             {{0, 0, 1, 1, 2}, "5 hosts for 4 ranks"},
             {{0, 0, -1, 1}, "r2 has host -1, must be 0 or more"}}) {
      Status status = algorithm.plan(collective, {{}, hosts}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << algorithm.name;
      EXPECT_NE(status.message().find(words), std::string::npos) << algorithm.name << ": " << status.message();
    }
  });
}

TEST(Hosts, AreTakenByFirstAppearanceWhateverTheirNumbers) {
  for_every_algorithm({6}, [](const Algorithm& algorithm, const Collective& collective) {
    EXPECT_EQ(algorithm.plan(collective, {{}, {7, 3, 7, 3, 1000000, 0}}).value(),
              algorithm.plan(collective, {{}, {0, 1, 0, 1, 2, 3}}).value());
  });
}

TEST(Hosts, KnowTheirRanks) {
  Hosts hosts(5, {0, 1, 0, 0, 1});
  EXPECT_EQ(hosts.in_order(), (std::vector<Node>{0, 2, 3, 1, 4}));
  EXPECT_EQ(hosts.most(), 3);
  EXPECT_EQ(hosts.carrier(1, 3), 1);  // the third of three is the first of two again
  for (Node rank = 0; rank < 5; ++rank) EXPECT_EQ(hosts.carrier(hosts.of(rank), rank), rank);
  EXPECT_EQ(Hosts(3).count(), 3);
}

TEST(Hosts, SuitHierarchicalAlgorithmsWhenThereIsAHierarchy) {
  for_every_algorithm({4}, [](const Algorithm& algorithm, const Collective&) {
    for (const std::vector<int>& flat : std::vector<std::vector<int>>{{}, {0, 1, 2, 3}, {0, 0, 0, 0}}) {
      EXPECT_EQ(suits(algorithm, flat), !algorithm.hierarchical) << algorithm.name;
    }
    EXPECT_TRUE(suits(algorithm, {0, 0, 1, 1}));
    EXPECT_TRUE(suits(algorithm, {0, 1, 2, 1}));
    EXPECT_EQ(algorithm.hierarchical, algorithm.name.starts_with("hierarchical")) << algorithm.name;
  });
}

// What a hierarchical algorithm is said to draw where there is no hierarchy, and why it need not be looked at.
TEST(Hosts, OfOneRankEachLeaveTheAlgorithmBetweenHosts) {
  for (const char* name : {"ring", "doubling", "halving_doubling", "direct"}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      Collective collective{CollectiveKind::kAllReduce, ranks, 0};
      Schedule plain = find_algorithm(collective.kind, name)->plan(collective, {}).value();
      std::string algorithm = "hierarchical_" + std::string(name);
      Schedule composed = find_algorithm(collective.kind, algorithm)->plan(collective, {}).value();
      plain.algorithm = algorithm;
      EXPECT_EQ(composed, plain);
    }
  }
}

}  // namespace
}  // namespace braid
