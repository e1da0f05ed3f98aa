// SPDX-License-Identifier: Apache-2.0
// All-to-all in n-1 rounds. In each round every rank sends one block and receives one block, so that no rank gets
// messages from many senders at once.
//
//   round 0:  0 -> 1 -> 2 -> 3 -> 0       (and every rank copies its own block)
//   round 1:  0 <-> 2   1 <-> 3
//   round 2:  0 -> 3 -> 2 -> 1 -> 0
//
// Rounds: n-1. Sent per rank: n-1 blocks.
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
#include "planner/shapes.h"
#include "schedule/builder.h"

namespace braid {

Schedule plan_pairwise(const Collective& collective) {
  int n = collective.ranks;
  Builder builder(collective, "pairwise", n);
  for (Node node = 0; node < n; ++node) builder.copy(node, output(node), input(node));
  for (int distance = 1; distance < n; ++distance) {
    for (Node node = 0; node < n; ++node) {
      Node to = (node + distance) % n;
      Node from = (node + n - distance) % n;
      builder.send(node, input(to), to);
      builder.recv(node, output(from), from);
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
