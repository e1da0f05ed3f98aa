// SPDX-License-Identifier: Apache-2.0
// The two halves of the ring all-reduce, as collectives of their own.
//
//   reduce_scatter, 4 ranks: block 3 starts at r0, and r1, r2, r3 add theirs in turn; r3 keeps it.
//     Partial sums stay in scratch, as only the last one is the caller's.
//   all_gather, 4 ranks: block 0 goes 0 -> 1 -> 2 -> 3, and the others likewise.
//
// Rounds: n-1 each. Sent per rank: n-1 blocks, the least possible.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_ring_reduce_scatter(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  auto wrap = [n](int block) { return (block % n + n) % n; };

  for (int round = 0; round < n - 1; ++round) {
    bool last = round == n - 2;
    for (Node node = 0; node < n; ++node) {
      int leaving = wrap(node - round - 1);
      int summed = wrap(node - round - 2);
      builder.send(node, round == 0 ? input(leaving) : scratch(leaving), wrap(node + 1));
      builder.reduce(node, last ? output(0) : scratch(summed),
                     {local(input(summed)), message_from(wrap(node - 1))});
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

Schedule plan_ring_all_gather(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "ring");
  Builder builder(collective, "ring", n);
  auto wrap = [n](int block) { return (block % n + n) % n; };

  for (int round = 0; round < n - 1; ++round) {
    for (Node node = 0; node < n; ++node) {
      builder.send(node, round == 0 ? input(0) : output(wrap(node - round)), wrap(node + 1));
      builder.recv(node, output(wrap(node - round - 1)), wrap(node - 1));
      if (round == 0) builder.copy(node, output(node), input(0));
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
