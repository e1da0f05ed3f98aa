// SPDX-License-Identifier: Apache-2.0
// The two halves of the ring all-reduce, as collectives of their own.
//
//   reduce_scatter, 4 ranks: block 3 starts at r0; r1, r2 and r3 add their contributions in turn; r3 keeps the
//   sum.
//     Partial sums stay in scratch, because the caller gets only the last sum.
//   all_gather, 4 ranks: block 0 goes 0 -> 1 -> 2 -> 3, and the other blocks likewise.
//
// Ranks are placed on the ring host by host, so only one edge leads out of each host, and one into it.
// Rounds: n-1 each. Sent per rank: n-1 blocks, the least possible.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_ring_reduce_scatter(const Collective& collective, const Hosts& hosts) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  std::vector<Node> ring = hosts.in_order();
  auto at = [&](int place) { return ring[(place % n + n) % n]; };

  for (int round = 0; round < n - 1; ++round) {
    bool last = round == n - 2;
    for (int place = 0; place < n; ++place) {
      Node node = ring[place];
      Node leaving = at(place - round - 1);
      Node summed = at(place - round - 2);
      builder.send(node, round == 0 ? input(leaving) : scratch(leaving), at(place + 1));
      builder.reduce(node, last ? output(0) : scratch(summed),
                     {local(input(summed)), message_from(at(place - 1))});
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

Schedule plan_ring_all_gather(const Collective& collective, const Hosts& hosts) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  std::vector<Node> ring = hosts.in_order();
  auto at = [&](int place) { return ring[(place % n + n) % n]; };

  for (int round = 0; round < n - 1; ++round) {
    for (int place = 0; place < n; ++place) {
      Node node = ring[place];
      builder.send(node, round == 0 ? input(0) : output(at(place - round)), at(place + 1));
      builder.recv(node, output(at(place - round - 1)), at(place - 1));
      if (round == 0) builder.copy(node, output(node), input(0));
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
