// SPDX-License-Identifier: Apache-2.0
// All-reduce on a ring. Every chunk travels once around to be summed and once more to be handed out.
//
//   0 -> 1 -> 2 -> 3 -> 0     round 0: r0 sends chunk 0, r1 chunk 1, ...; the next rank adds its own
//                             rounds 1..n-2: each rank sends the chunk that it just added to;
//                             after them rank r has the sum of chunk r+1
//                             rounds n-1..2n-3: the sums go around unchanged
//
// Ranks are placed on the ring host by host, so only one edge leads out of each host, and one into it.
// Rounds: 2(n-1). Sent per rank: 2(n-1)/n S, the least possible. n chunks.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_ring_all_reduce(const Collective& collective, const Hosts& hosts) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  std::vector<Node> ring = hosts.in_order();
  auto wrap = [n](int place) { return (place % n + n) % n; };

  for (int round = 0; round < n - 1; ++round) {
    for (int place = 0; place < n; ++place) {
      Node node = ring[place];
      int leaving = wrap(place - round);
      int summed = wrap(place - round - 1);
      builder.send(node, round == 0 ? input(leaving) : output(leaving), ring[wrap(place + 1)]);
      builder.reduce(node, output(summed), {local(input(summed)), message_from(ring[wrap(place - 1)])});
    }
    builder.end_round();
  }
  for (int round = 0; round < n - 1; ++round) {
    for (int place = 0; place < n; ++place) {
      Node node = ring[place];
      builder.send(node, output(wrap(place + 1 - round)), ring[wrap(place + 1)]);
      builder.recv(node, output(wrap(place - round)), ring[wrap(place - 1)]);
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
