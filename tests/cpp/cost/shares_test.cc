// SPDX-License-Identifier: Apache-2.0
#include "cost/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cost/cost.h"
#include "planner/planners.h"

namespace braid {
namespace {

std::vector<double> fractions(const std::vector<uint64_t>& shares) {
  double sum = static_cast<double>(std::accumulate(shares.begin(), shares.end(), uint64_t{0}));
  std::vector<double> parts;
  for (uint64_t share : shares) parts.push_back(static_cast<double>(share) / sum);
  return parts;
}

constexpr double kPerMbit = 8e-6;  // seconds per byte at 1 Mbit/s

// `ranks` on each of several hosts.
Topology nics(const std::vector<double>& mbit_per_s, int ranks = 1) {
  double fastest = *std::max_element(mbit_per_s.begin(), mbit_per_s.end());
  std::vector<int> hosts;
  for (size_t host = 0; host < mbit_per_s.size(); ++host) hosts.insert(hosts.end(), ranks, static_cast<int>(host));
  Topology topology(hosts, {0, 1e-12}, {1e-4, kPerMbit / fastest});
  for (size_t host = 0; host < mbit_per_s.size(); ++host) {
    topology.set_nic(static_cast<int>(host), {kPerMbit / mbit_per_s[host], kPerMbit / mbit_per_s[host]});
  }
  return topology;
}

TEST(Shares, AreEqualForEqualNics) {
  for (const Topology& topology : {uniform(5, 1e-5, 1e-9), one_host(8), uniform(5, 1e-5, 0), nics({9, 9, 9}, 4)}) {
    EXPECT_TRUE(rank_shares(topology).empty());
    EXPECT_TRUE(host_shares(topology).empty());
  }
}

TEST(Shares, OfTwoDoNotMatter) {
  EXPECT_TRUE(rank_shares(nics({100, 10})).empty());
  EXPECT_TRUE(host_shares(nics({100, 10}, 3)).empty());
}

TEST(Shares, AreEqualWhereThatCostsOnePercent) {
  EXPECT_TRUE(rank_shares(nics({100, 100, 100, 99})).empty());
  EXPECT_FALSE(rank_shares(nics({100, 100, 100, 97})).empty());
}

// The worked example of the source: 100, 100, 100, 80 Mbit/s.
TEST(Shares, FollowTheClosedForm) {
  for (const auto& shares : {rank_shares(nics({100, 100, 100, 80})), host_shares(nics({100, 100, 100, 80}, 3))}) {
    std::vector<double> parts = fractions(shares);
    ASSERT_EQ(parts.size(), 4u);
    for (int node = 0; node < 3; ++node) EXPECT_NEAR(parts[node], 0.2895, 1e-4);
    EXPECT_NEAR(parts[3], 0.1316, 1e-4);
  }
}

TEST(Shares, GiveNothingToANicThatIsBusyWithItsOwn) {
  std::vector<double> parts = fractions(rank_shares(nics({100, 100, 100, 5})));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[3], 0);
  EXPECT_NEAR(parts[0], 1.0 / 3, 1e-6);
}

TEST(Shares, LookAtTheSlowerDirection) {
  Topology topology = nics({100, 100, 100, 100});
  topology.set_nic(3, {kPerMbit / 80, kPerMbit / 100});
  EXPECT_NEAR(fractions(rank_shares(topology))[3], 0.1316, 1e-4);
  topology.set_nic(3, {kPerMbit / 100, kPerMbit / 80});
  EXPECT_NEAR(fractions(rank_shares(topology))[3], 0.1316, 1e-4);
}

// Hosts of three and of one rank with the same NICs. Of n = 5 ranks one that is alone bears 1 + 3 X, three on a
// host 3 - X: the less the more they own. Equal shares take 3 - 3/5; the best is 3 - X = 1 + 3 (1-X)/2.
TEST(Shares, OfRanksFollowHowManyShareANic) {
  const Topology topology({0, 0, 0, 1, 2}, {0, 0}, {0, 1});
  const std::vector<double> parts = fractions(rank_shares(topology));
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_NEAR(parts[0], 1.0 / 3, 1e-5);  // X = 1 costs 2, and the others 1
  EXPECT_NEAR(parts[3], 0, 1e-5);
  EXPECT_TRUE(host_shares(topology).empty());
}

// The worked example of the source: the same four and a reducer of 100 Mbit/s.
TEST(Shares, WithAnAggregatorFollowTheClosedForm) {
  const std::vector<double> parts = fractions(rank_shares(nics({100, 100, 100, 80, 100}), 1));
  ASSERT_EQ(parts.size(), 5u);
  for (int node = 0; node < 3; ++node) EXPECT_NEAR(parts[node], 0.1977, 1e-4);
  EXPECT_NEAR(parts[3], 0.0581, 1e-4);
  EXPECT_NEAR(parts[4], 0.3488, 1e-4);
}

// Five ranks on hosts 0, 1, 1, 2 and 3, aggregators on 4, 4 and 0.
Topology with_aggregators() {
  Topology topology({0, 1, 1, 2, 3, 4, 4, 0}, {0, 0}, {0, 8e-9});
  topology.set_nic(1, {4e-9, 4e-9});
  topology.set_nic(3, {9.6e-9, 9.6e-9});
  return topology;
}

TEST(Shares, OfAggregatorsFollowTheirNics) {
  const std::vector<double> parts = fractions(rank_shares(with_aggregators(), 3));
  ASSERT_EQ(parts.size(), 8u);
  EXPECT_EQ(parts[7], 0);  // shares a NIC with ranks: they may as well own its part
  EXPECT_GT(parts[5], 0);
  EXPECT_EQ(parts[5], parts[6]);
  EXPECT_GT(parts[0], 0);
  const std::vector<double> of_hosts = fractions(host_shares(with_aggregators(), 3));
  ASSERT_EQ(of_hosts.size(), 7u);  // four hosts, three aggregators
  EXPECT_EQ(of_hosts[6], 0);
  EXPECT_GT(of_hosts[4], 0);
  EXPECT_EQ(of_hosts[4], of_hosts[5]);
}

// Two hosts each send or receive a vector either way, whoever adds.
TEST(Shares, AggregatorsOfTwoAreOfNoUse) {
  EXPECT_TRUE(rank_shares(nics({100, 100, 100}), 1).empty());  // and equal ones do no harm
  const std::vector<double> slow = fractions(rank_shares(nics({100, 100, 1}), 1));
  ASSERT_EQ(slow.size(), 3u);
  EXPECT_LE(slow[2], 0.005 + 1e-6);
}

TEST(Shares, OfManyAggregatorsLeaveRanksNothing) {
  // Every rank sends its vector in the time 1, and 2 (n-1) over 4 + 8/2 is less.
  const std::vector<double> parts = fractions(rank_shares(nics({1, 1, 1, 1, 2, 2, 2, 2}), 4));
  ASSERT_EQ(parts.size(), 8u);
  for (int node = 0; node < 8; ++node) EXPECT_NEAR(parts[node], node < 4 ? 0 : 0.25, 1e-5);
}

// With segments that overlap without end.
double seconds_of(const char* algorithm, const Topology& topology, int aggregators,
                  const std::vector<uint64_t>& shares) {
  const Collective collective{CollectiveKind::kAllReduce, topology.nodes() - aggregators, 0};
  const PlanOptions options{shares, topology.numbered_hosts(), aggregators};
  const Schedule schedule = find_algorithm(collective.kind, algorithm)->plan(collective, options).value();
  return predict_s(schedule, int64_t{1} << 30, topology, Rates{0, 0}, {4096, 4096}).value();
}

// What the formulas say a NIC carries is what the cost model counts of the schedule: nothing that is moved from
// one owner to another makes it faster.
void expect_best(const char* algorithm, const Topology& topology, int aggregators,
                 const std::vector<uint64_t>& best) {
  const double best_s = seconds_of(algorithm, topology, aggregators, best);
  EXPECT_LT(best_s, 0.9 * seconds_of(algorithm, topology, aggregators, {}));
  for (size_t from = 0; from < best.size(); ++from) {
    for (size_t to = 0; to < best.size(); ++to) {
      std::vector<uint64_t> other = best;
      const uint64_t moved = std::min<uint64_t>(other[from], 1 << 15);
      other[from] -= moved;
      other[to] += moved;
      EXPECT_GE(seconds_of(algorithm, topology, aggregators, other), best_s * (1 - 1e-4)) << from << " to " << to;
    }
  }
}

TEST(Shares, TakeTheTimeThatTheCostModelPredicts) {
  Topology topology({0, 1, 1, 2, 2, 2, 3, 4}, {0, 0}, {0, 8e-9});
  topology.set_nic(2, {8e-9, 2e-8});
  topology.set_nic(4, {4e-8, 8e-9});
  expect_best("direct", topology, 0, rank_shares(topology));
}

TEST(Shares, WithAggregatorsTakeTheTimeThatTheCostModelPredicts) {
  expect_best("direct", with_aggregators(), 3, rank_shares(with_aggregators(), 3));
  expect_best("hierarchical_direct", with_aggregators(), 3, host_shares(with_aggregators(), 3));
}

TEST(Shares, WithAggregatorsAreNeverWorseThanWithout) {
  for (const double rate : {1.0, 20.0, 100.0, 1000.0}) {
    for (int host = 0; host <= 4; ++host) {  // beside a rank, or alone
      Topology topology({0, 1, 2, 3, host}, {0, 0}, {0, kPerMbit / 100});
      topology.set_nic(3, {kPerMbit / 60, kPerMbit / 60});
      topology.set_nic(host, {kPerMbit / rate, kPerMbit / rate});
      const Topology ranks = topology.first(4);
      EXPECT_LE(seconds_of("direct", topology, 1, rank_shares(topology, 1)),
                seconds_of("direct", ranks, 0, rank_shares(ranks)) * 1.0105)
          << rate << " " << host;
    }
  }
}

}  // namespace
}  // namespace braid
