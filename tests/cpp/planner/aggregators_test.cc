// SPDX-License-Identifier: Apache-2.0
// Schedules with nodes that only add up.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/hosts.h"
#include "schedule/text.h"
#include "support/every_algorithm.h"
#include "support/layouts.h"
#include "support/reference.h"
#include "support/traffic.h"
#include "verify/verify.h"

namespace braid {
namespace {

using Shares = std::vector<uint64_t>;

const Algorithm& algorithm_of(const char* name) { return *find_algorithm(CollectiveKind::kAllReduce, name); }

Schedule drawn(const char* algorithm, int ranks, const PlanOptions& options) {
  return testing::drawn_with(algorithm_of(algorithm), {CollectiveKind::kAllReduce, ranks, 0}, options);
}

// Empty, a weight each, one of them 0, only aggregators, and only the last rank.
std::vector<Shares> all_shares(int contributing, int aggregators) {
  Shares weights;
  for (int owner = 0; owner < contributing + aggregators; ++owner) weights.push_back(3 + owner * 5 % 7);
  Shares with_gaps = weights;
  with_gaps[0] = with_gaps.back() = 0;
  Shares only_aggregators = weights;
  std::fill_n(only_aggregators.begin(), contributing, 0);
  Shares only_one(weights.size(), 0);
  only_one[contributing - 1] = 1;
  if (with_gaps.size() == 2) with_gaps = weights;
  return {{}, weights, with_gaps, only_aggregators, only_one};
}

void expect_right(const Schedule& schedule, int aggregators, const std::string& title) {
  Result<VerifiedSchedule> verified = verify(schedule);
  ASSERT_TRUE(verified.ok()) << title << ": " << verified.status().message();
  EXPECT_EQ(testing::fault_of(schedule), "") << title;
  EXPECT_EQ(schedule.aggregators(), aggregators) << title;
  Result<Schedule> again = schedule_from_text(to_text(schedule));
  ASSERT_TRUE(again.ok()) << title << ": " << again.status().message();
  EXPECT_EQ(again.value(), schedule) << title;
}

TEST(Aggregators, OfDirectAreRightForAllSharesAndWorldSizes) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (int aggregators = 1; aggregators <= 4; ++aggregators) {
      for (const Shares& shares : all_shares(ranks, aggregators)) {
        expect_right(drawn("direct", ranks, {shares, {}, aggregators}), aggregators,
                     std::to_string(ranks) + "+" + std::to_string(aggregators));
      }
    }
  }
}

TEST(Aggregators, OfHierarchicalDirectAreRightWhereverTheyAre) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::vector<int> hosts : testing::layouts(ranks)) {
      const int hosts_of_ranks = Hosts(ranks, hosts).count();
      for (const std::vector<int>& of_aggregators : std::vector<std::vector<int>>{{90}, {0, 91}, {92, 92, 0}}) {
        const int aggregators = static_cast<int>(of_aggregators.size());
        if (!hosts.empty()) hosts.insert(hosts.end(), of_aggregators.begin(), of_aggregators.end());
        for (const Shares& shares : all_shares(hosts_of_ranks, aggregators)) {
          expect_right(drawn("hierarchical_direct", ranks, {shares, hosts, aggregators}), aggregators,
                       testing::text_of(hosts));
        }
        if (!hosts.empty()) hosts.resize(ranks);
      }
    }
  }
}

TEST(Aggregators, SendWhatTheFormulasSay) {
  const Schedule schedule = drawn("direct", 4, {{10, 20, 0, 30, 15, 25}, {}, 2});
  for (Node rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(testing::sent(schedule, rank, 100), 100 + 2 * static_cast<int64_t>(schedule.shares[rank])) << rank;
  }
  EXPECT_EQ(testing::sent(schedule, 4, 100), 4 * 15);
  EXPECT_EQ(testing::sent(schedule, 5, 100), 4 * 25);
}

// So a sum has the same bits with and without them.
TEST(Aggregators, AddUpInOnePassInTheOrderOfRanks) {
  const Schedule schedule = drawn("direct", 3, {{}, {}, 2});
  for (Node node = 3; node < 5; ++node) {
    const Round& first = schedule.programs[node][0];
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(to_text(first[0]), "reduce t" + std::to_string(node) + " = r0 + r1 + r2");
  }
}

// Ranks of a host carry its part to an aggregator in equal parts.
TEST(Aggregators, DealWithAllRanksOfAHost) {
  const Schedule schedule = drawn("hierarchical_direct", 4, {{}, {0, 0, 1, 1, 2}, 1});
  std::vector<int> taken_from(4, 0);
  for (const Round& round : schedule.programs[4]) {
    for (const Step& step : round) {
      for (const Source& source : step.sources) ++taken_from[source.from];
    }
  }
  EXPECT_EQ(taken_from, std::vector<int>(4, 1));
}

TEST(Aggregators, OfASingleRankHaveNothingToDo) {
  for (const char* algorithm : {"direct", "hierarchical_direct"}) {
    const Schedule schedule = drawn(algorithm, 1, {{}, {}, 2});
    EXPECT_TRUE(schedule.programs[1].empty());
    EXPECT_TRUE(schedule.programs[2].empty());
  }
}

TEST(Aggregators, AreRefusedByAlgorithmsWithoutWorkForThem) {
  testing::for_every_algorithm({3}, [](const Algorithm& algorithm, const Collective& collective) {
    const Result<Schedule> schedule = algorithm.plan(collective, {{}, {}, 1});
    EXPECT_EQ(schedule.ok(), algorithm.takes_aggregators) << algorithm.name;
    if (!schedule.ok()) {
      EXPECT_EQ(schedule.status().message(), "this algorithm has no work for aggregators");
    }
  });
}

TEST(Aggregators, WrongNumbersAreRefusedInWords) {
  for (const auto& [options, words] : std::vector<std::pair<PlanOptions, std::string>>{
           {{{}, {}, -1}, "-1 aggregators, must be between 0 and 4093 with 3 ranks"},
           {{{}, {}, 4094}, "4094 aggregators, must be between 0 and 4093 with 3 ranks"},
           {{{}, {0, 1, 2}, 1}, "3 hosts for 3 ranks and 1 aggregator"},
           {{{}, {0, 1, 2, -7}, 1}, "r3 has host -7"},
           {{{1, 1, 1}, {}, 2}, "3 shares for 3 "}}) {
    for (const char* algorithm : {"direct", "hierarchical_direct"}) {
      const Status status = algorithm_of(algorithm).plan({CollectiveKind::kAllReduce, 3, 0}, options).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << words;
      EXPECT_NE(status.message().find(words), std::string::npos) << algorithm << ": " << status.message();
    }
  }
  const Status status = algorithm_of("hierarchical_direct")
                            .plan({CollectiveKind::kAllReduce, 3, 0}, {{1, 1}, {0, 0, 1, 1}, 1})
                            .status();
  EXPECT_NE(status.message().find("2 shares for 2 hosts and 1 aggregator"), std::string::npos) << status.message();
}

// A piece for each of 600 ranks of a host would be more chunks than a schedule may have.
TEST(Aggregators, CountAmongTheNodesOfASchedule) {
  std::vector<int> hosts(600, 0);
  hosts.resize(1000, 1);
  hosts.resize(1200, 2);
  const Schedule schedule = drawn("hierarchical_direct", 1000, {{}, hosts, 200});
  EXPECT_LE(int64_t{schedule.chunks} * schedule.nodes(), kMaxChunksOfAllNodes);
  EXPECT_EQ(schedule.chunks % 202, 0);
}

}  // namespace
}  // namespace braid
