// SPDX-License-Identifier: Apache-2.0
#include "verify/owners.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "schedule/text.h"
#include "support/every_algorithm.h"

namespace braid {
namespace {

std::vector<int> apart(int ranks) {
  std::vector<int> hosts(static_cast<size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

bool has_owners(const std::string& algorithm, int ranks, std::vector<int> hosts, int aggregators = 0) {
  const auto schedule = testing::planned(*find_algorithm(CollectiveKind::kAllReduce, algorithm),
                                         {CollectiveKind::kAllReduce, ranks, 0}, {{}, hosts, aggregators});
  if (hosts.empty()) hosts = apart(ranks + aggregators);
  return braid::has_owners(*schedule, hosts);
}

bool text_has_owners(const std::string& text, const std::vector<int>& hosts) {
  const auto schedule = verify(schedule_from_text(text).value());
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return braid::has_owners(schedule.value(), hosts);
}

TEST(Owners, AreInDirectExchange) {
  for (int ranks = 2; ranks <= 8; ++ranks) EXPECT_TRUE(has_owners("direct", ranks, {})) << ranks;
  EXPECT_TRUE(has_owners("direct", 4, {0, 0, 1, 1}));  // one of three contributions stays on the host
  EXPECT_TRUE(has_owners("direct", 5, {0, 1, 0, 1, 2}));
}

TEST(Owners, AreInDirectExchangeBetweenHosts) {
  EXPECT_TRUE(has_owners("hierarchical_direct", 4, {0, 0, 1, 1}));
  EXPECT_TRUE(has_owners("hierarchical_direct", 7, {0, 1, 0, 1, 2, 0, 0}));
}

TEST(Owners, AreNotWhereAHostIsAlone) { EXPECT_FALSE(has_owners("direct", 3, {0, 0, 0})); }

TEST(Owners, AreNotWithAggregators) { EXPECT_FALSE(has_owners("direct", 3, {}, 1)); }

TEST(Owners, AreNotWhereSumsGrowHopByHop) {
  EXPECT_FALSE(has_owners("ring", 3, {}));
  EXPECT_FALSE(has_owners("ring", 4, {0, 0, 1, 1}));
  EXPECT_FALSE(has_owners("double_tree", 8, {}));
  EXPECT_FALSE(has_owners("halving_doubling", 4, {}));
  EXPECT_FALSE(has_owners("hierarchical_ring", 6, {0, 0, 1, 1, 2, 2}));
}

TEST(Owners, AreNotWhereSeveralAddUpTheSame) {
  EXPECT_FALSE(has_owners("gather_all", 3, {}));
  EXPECT_FALSE(has_owners("doubling", 2, {}));
  EXPECT_FALSE(has_owners("doubling", 4, {}));
}

TEST(Owners, OwnTheSumBeforeTheySendIt) {
  EXPECT_TRUE(
      text_has_owners("all_reduce x ranks=2 chunks=1\n"
                      "r0\n  0: reduce o0 = i0 + r1\n  1: send o0 -> r1\n"
                      "r1\n  0: send i0 -> r0\n  1: recv o0 <- r0\n",
                      {0, 1}));
}

// Rank 1, on the owner's host, hands the sum on: what it sends is nobody's encoding.
TEST(Owners, MustSendTheSumThemselves) {
  const std::string text =
      "all_reduce x ranks=3 chunks=1\n"
      "r0\n  0: reduce o0 = i0 + r1 + r2\n  1: send o0 -> r1\n"
      "r1\n  0: send i0 -> r0\n  1: recv o0 <- r0\n  2: send o0 -> r2\n"
      "r2\n  0: send i0 -> r0\n  1: recv o0 <- r1\n";
  EXPECT_FALSE(text_has_owners(text, {0, 0, 1}));
  EXPECT_TRUE(text_has_owners(text, {1, 0, 0}));  // inside a host it may
}

TEST(Owners, AreInReduceScatter) {
  const auto scatters = [](const char* algorithm, const std::vector<int>& hosts) {
    const int ranks = static_cast<int>(hosts.size());
    const Collective collective{CollectiveKind::kReduceScatter, ranks, 0};
    return braid::has_owners(
        *testing::planned(*find_algorithm(collective.kind, algorithm), collective, {{}, hosts, 0}), hosts);
  };
  EXPECT_TRUE(scatters("direct", {0, 1}));
  EXPECT_TRUE(scatters("direct", {0, 1, 2, 3, 4}));
  EXPECT_TRUE(scatters("hierarchical", {0, 0, 1, 1}));
  EXPECT_TRUE(scatters("hierarchical", {0, 1, 0, 2, 1, 0}));
  EXPECT_FALSE(scatters("ring", {0, 1, 2}));
  EXPECT_FALSE(scatters("direct", {0, 0, 0}));
}

TEST(Owners, OfOtherCollectivesAreNone) {
  const auto schedule =
      testing::planned(*find_algorithm(CollectiveKind::kAllGather, "direct"), {CollectiveKind::kAllGather, 3, 0});
  EXPECT_FALSE(braid::has_owners(*schedule, apart(3)));
}

}  // namespace
}  // namespace braid
