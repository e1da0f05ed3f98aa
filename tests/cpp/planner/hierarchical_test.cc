// SPDX-License-Identifier: Apache-2.0
#include "planner/hierarchical.h"

#include <gtest/gtest.h>

#include "schedule/text.h"
#include "support/layouts.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace braid {
namespace {

using testing::fault_of;

const Algorithm& direct() { return *find_algorithm(CollectiveKind::kAllReduce, "hierarchical_direct"); }

std::string reason_against(const Schedule& schedule) {
  Result<VerifiedSchedule> verified = verify(schedule);
  return verified.ok() ? fault_of(schedule) : verified.status().message();
}

TEST(HierarchicalDirect, TakesAShareForEveryHost) {
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 0, 1, 1, 2, 2}, {0, 1, 1, 2, 1, 1, 2}, {0, 1, 2, 0, 1, 2, 0}}) {
    int ranks = static_cast<int>(hosts.size());
    for (const std::vector<uint64_t>& shares :
         std::vector<std::vector<uint64_t>>{{1, 2, 3}, {0, 1, 0}, {5, 0, 5}, {uint64_t{1} << 62, 7, 1}}) {
      Schedule schedule = testing::drawn_with(direct(), {CollectiveKind::kAllReduce, ranks, 0}, {shares, hosts});
      EXPECT_EQ(reason_against(schedule), "") << testing::text_of(hosts);
    }
  }
}

TEST(HierarchicalDirect, GivesEveryPieceTheSharesOfTheHosts) {
  Collective six{CollectiveKind::kAllReduce, 6, 0};
  std::vector<int> hosts = {0, 1, 1, 1, 2, 2};
  EXPECT_EQ(testing::drawn_with(direct(), six, {{4, 0, 1}, hosts}).shares,
            (std::vector<uint64_t>{4, 0, 1, 4, 0, 1, 4, 0, 1}));
  // Three pieces of 2^62 would be 2^63 or more; what has a share keeps one.
  std::vector<uint64_t> scaled = testing::drawn_with(direct(), six, {{uint64_t{1} << 62, 0, 1}, hosts}).shares;
  EXPECT_EQ(std::vector<uint64_t>(scaled.begin(), scaled.begin() + 3),
            (std::vector<uint64_t>{uint64_t{1} << 61, 0, 1}));
}

TEST(HierarchicalDirect, RefusesSharesOfAnotherNumberOfHosts) {
  Collective four{CollectiveKind::kAllReduce, 4, 0};
  for (const std::vector<uint64_t>& shares : std::vector<std::vector<uint64_t>>{{1}, {1, 2, 3, 4}}) {
    Status status = direct().plan(four, {shares, {0, 0, 1, 1}}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(shares.size()) + " shares for 2 hosts"), std::string::npos)
        << status.message();
  }
}

TEST(HierarchicalDirect, RoundsTwiceAndInFourRounds) {
  Schedule schedule =
      testing::drawn_with(direct(), {CollectiveKind::kAllReduce, 8, 0}, {{}, {0, 0, 0, 0, 1, 1, 1, 1}});
  for (const Program& program : schedule.programs) {
    EXPECT_EQ(program.size(), 4u);
    int reductions = 0;
    for (const Round& round : program) {
      for (const Step& step : round) reductions += step.op == Op::kReduce;
    }
    EXPECT_EQ(reductions, 2);
  }
}

// Fewer pieces than ranks leave some without any, more than ranks are carried several at a time.
TEST(Composition, IsRightForAnyNumberOfPieces) {
  Collective seven{CollectiveKind::kAllReduce, 7, 0};
  for (const std::vector<int>& layout :
       std::vector<std::vector<int>>{{0, 0, 0, 1, 1, 2, 2}, {0, 1, 1, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2, 0}}) {
    Hosts hosts(7, layout);
    for (const Algorithm& algorithm : algorithms(seven.kind)) {
      Schedule between = testing::drawn_with(algorithm, {seven.kind, 3, 0}, {});
      for (int pieces : {1, 2, 3, 4, 5, 9}) {
        Schedule composed = compose_all_reduce(seven, hosts, between, pieces, "composed");
        EXPECT_EQ(reason_against(composed), "") << algorithm.name << pieces << testing::text_of(layout);
      }
    }
  }
}

TEST(Composition, MayUseScratch) {
  Schedule between = schedule_from_text(
                         "all_reduce x ranks=2 chunks=2\n"
                         "r0\n  0: recv t0-1 <- r1\n  1: reduce o0-1 = i0-1 + t0-1\n  2: send o0-1 -> r1\n"
                         "r1\n  0: send i0-1 -> r0\n  1: recv t0-1 <- r0\n  2: copy o0-1 = t0-1\n")
                         .value();
  for (const std::vector<int>& layout : std::vector<std::vector<int>>{{0, 0, 0, 1, 1}, {0, 1, 1, 1, 1}}) {
    Schedule composed =
        compose_all_reduce({CollectiveKind::kAllReduce, 5, 0}, Hosts(5, layout), between, 3, "composed");
    EXPECT_EQ(reason_against(composed), "") << testing::text_of(layout);
  }
}

// 255 hosts of one rank and one of 159: a piece for each would be more chunks than a schedule may have.
TEST(Composition, HasNoMoreChunksThanASchedule) {
  std::vector<int> hosts(255 + 159, 255);
  for (int host = 0; host < 255; ++host) hosts[host] = host;
  Collective collective{CollectiveKind::kAllReduce, static_cast<int>(hosts.size()), 0};
  Schedule schedule = testing::drawn_with(*find_algorithm(collective.kind, "hierarchical_halving_doubling"),
                                          collective, {{}, hosts});
  EXPECT_EQ(schedule.chunks, 158 * 256);
  EXPECT_LE(int64_t{schedule.chunks} * collective.ranks, kMaxChunksOfAllNodes);
}

}  // namespace
}  // namespace braid
