// SPDX-License-Identifier: Apache-2.0
// All-reduce on a ring. Every chunk travels once around to be summed and once more to be handed out.
//
//   0 -> 1 -> 2 -> 3 -> 0     round 0: r0 sends chunk 0, r1 chunk 1, ...; the next rank adds its own
//                             rounds 1..n-2: on goes what was just added; then r owns the sum of chunk r+1
//                             rounds n-1..2n-3: the sums go around, received as they are
//
// Rounds: 2(n-1). Sent per rank: 2(n-1)/n S, the least possible. n chunks.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_ring_all_reduce(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  auto wrap = [n](int chunk) { return (chunk % n + n) % n; };

  for (int round = 0; round < n - 1; ++round) {
    for (Node node = 0; node < n; ++node) {
      int leaving = wrap(node - round);
      int summed = wrap(node - round - 1);
      builder.send(node, round == 0 ? input(leaving) : output(leaving), wrap(node + 1));
      builder.reduce(node, output(summed), {local(input(summed)), message_from(wrap(node - 1))});
    }
    builder.end_round();
  }
  for (int round = 0; round < n - 1; ++round) {
    for (Node node = 0; node < n; ++node) {
      builder.send(node, output(wrap(node + 1 - round)), wrap(node + 1));
      builder.recv(node, output(wrap(node - round)), wrap(node - 1));
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
