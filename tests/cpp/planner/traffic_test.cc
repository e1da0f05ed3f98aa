// SPDX-License-Identifier: Apache-2.0
// What crosses from host to host, as the planners' header comments claim.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "planner/hosts.h"
#include "support/every_algorithm.h"
#include "support/layouts.h"

namespace braid {
namespace {

using enum CollectiveKind;

Schedule draw(const Collective& collective, const char* algorithm, const PlanOptions& options) {
  return testing::drawn_with(*find_algorithm(collective.kind, algorithm), collective, options);
}

template <class Visit>
void for_every_crossing(const Schedule& schedule, const Hosts& hosts, const Visit& visit) {
  for (Node node = 0; node < schedule.collective.ranks; ++node) {
    for (const Round& round : schedule.programs[node]) {
      for (const Step& step : round) {
        if (step.op == Op::kSend && hosts.of(node) != hosts.of(step.peer)) visit(node, step);
      }
    }
  }
}

// Elements that leave each host, of a vector or of blocks of one element.
std::map<int, int64_t> sent_out(const Schedule& schedule, const Hosts& hosts, int64_t count) {
  std::vector<int64_t> offsets = chunk_offsets(schedule, count);
  bool blocks = !is_vector(schedule.collective.kind);
  std::map<int, int64_t> total;
  for_every_crossing(schedule, hosts, [&](Node node, const Step& step) {
    total[hosts.of(node)] +=
        blocks ? 1 : offsets[step.target.first + step.target.count] - offsets[step.target.first];
  });
  return total;
}

TEST(Ring, LeavesAndEntersEveryHostOnce) {
  for (CollectiveKind kind : {kAllReduce, kReduceScatter, kAllGather}) {
    for (int ranks = 2; ranks <= 13; ++ranks) {
      for (const std::vector<int>& layout : testing::layouts(ranks)) {
        Hosts hosts(ranks, layout);
        std::set<std::pair<Node, Node>> edges;
        for_every_crossing(draw({kind, ranks, 0}, "ring", {{}, layout}), hosts,
                           [&](Node node, const Step& step) { edges.insert({node, step.peer}); });
        std::map<int, int> out;
        std::map<int, int> in;
        for (const auto& [from, to] : edges) {
          EXPECT_EQ(++out[hosts.of(from)], 1) << name_of(kind) << testing::text_of(layout);
          EXPECT_EQ(++in[hosts.of(to)], 1) << name_of(kind) << testing::text_of(layout);
        }
        EXPECT_EQ(edges.size(), hosts.count() == 1 ? 0u : static_cast<size_t>(hosts.count()));
      }
    }
  }
}

TEST(Ring, IsThatOfRanksWhenHostsAreInOnePiece) {
  for (CollectiveKind kind : {kAllReduce, kReduceScatter, kAllGather}) {
    for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0, 0, 0}, {0, 1, 1, 2, 2}}) {
      EXPECT_EQ(draw({kind, 5, 0}, "ring", {{}, hosts}), draw({kind, 5, 0}, "ring", {}));
    }
  }
}

// In one piece each, or in turn.
std::vector<int> equal_hosts(int count, int size, bool round_robin) {
  std::vector<int> hosts;
  for (int rank = 0; rank < count * size; ++rank) hosts.push_back(round_robin ? rank % count : rank / size);
  return hosts;
}

TEST(Hierarchical, AllReduceSendsOutOfAHostWhatOneRankOfTheAlgorithmWould) {
  for (int count : {2, 3, 4, 8}) {
    for (int size : {2, 3, 4}) {
      for (bool round_robin : {false, true}) {
        std::vector<int> layout = equal_hosts(count, size, round_robin);
        int ranks = count * size;
        int64_t elements = 24 * 24;
        for (const char* algorithm :
             {"hierarchical_direct", "hierarchical_ring", "hierarchical_halving_doubling"}) {
          if (count == 3 && algorithm == std::string("hierarchical_halving_doubling")) continue;  // is folded
          Schedule schedule = draw({kAllReduce, ranks, 0}, algorithm, {{}, layout});
          for (const auto& [host, sent] : sent_out(schedule, Hosts(ranks, layout), elements)) {
            EXPECT_EQ(sent, 2 * (count - 1) * elements / count) << algorithm << testing::text_of(layout);
          }
        }
      }
    }
  }
}

TEST(DoubleTree, KeepsMostMessagesInsideHosts) {
  for (int size : {2, 4, 8}) {
    for (bool round_robin : {false, true}) {
      std::vector<int> layout = equal_hosts(4, size, round_robin);
      int ranks = 4 * size;
      int crossing = 0;
      for_every_crossing(draw({kAllReduce, ranks, 0}, "double_tree", {{}, layout}), Hosts(ranks, layout),
                         [&](Node, const Step&) { ++crossing; });
      EXPECT_LE(crossing, 4 * 2 * 3) << testing::text_of(layout);  // of 4 (n - 1): two edges per boundary
    }
  }
}

TEST(Hierarchical, AllReduceKeepsAllRanksOfAHostAtWork) {
  std::vector<int> layout = equal_hosts(2, 4, false);
  std::map<Node, int64_t> crossing;
  for_every_crossing(draw({kAllReduce, 8, 0}, "hierarchical_direct", {{}, layout}), Hosts(8, layout),
                     [&](Node node, const Step& step) { crossing[node] += step.target.count; });
  ASSERT_EQ(crossing.size(), 8u);
  for (const auto& [node, chunks] : crossing) EXPECT_EQ(chunks, 2) << node;  // of 8: a quarter
}

TEST(Hierarchical, BlocksCrossOncePerHost) {
  for (int ranks = 1; ranks <= 13; ++ranks) {
    for (const std::vector<int>& layout : testing::layouts(ranks)) {
      Hosts hosts(ranks, layout);
      auto gathered = sent_out(draw({kAllGather, ranks, 0}, "hierarchical", {{}, layout}), hosts, ranks);
      auto scattered = sent_out(draw({kReduceScatter, ranks, 0}, "hierarchical", {{}, layout}), hosts, ranks);
      for (int host = 0; host < hosts.count(); ++host) {
        EXPECT_EQ(gathered[host], hosts.size(host) * (hosts.count() - 1)) << testing::text_of(layout);
        EXPECT_EQ(scattered[host], ranks - hosts.size(host)) << testing::text_of(layout);
      }
    }
  }
}

TEST(Hierarchical, RootedTreesCrossOncePerOtherHost) {
  for (CollectiveKind kind : {kBroadcast, kReduce}) {
    for (int ranks = 1; ranks <= 13; ++ranks) {
      for (const std::vector<int>& layout : testing::layouts(ranks)) {
        for (const Collective& collective : testing::collectives(kind, ranks)) {
          Hosts hosts(ranks, layout);
          int crossings = 0;
          for_every_crossing(draw(collective, "hierarchical", {{}, layout}), hosts,
                             [&](Node, const Step&) { ++crossings; });
          EXPECT_EQ(crossings, hosts.count() - 1) << name_of(kind) << testing::text_of(layout);
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
