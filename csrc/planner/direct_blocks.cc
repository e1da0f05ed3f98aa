// SPDX-License-Identifier: Apache-2.0
// The collectives of one block per rank, in a single round: every block goes straight to the ranks that need it.
//
//   r0 -> r1, r2, r3    r1 -> r2, r3, r0    r2 -> r3, r0, r1    r3 -> r0, r1, r2
//
// Rounds: 1. Sent per rank: n-1 blocks. In reduce_scatter a rank adds all n contributions in one pass in the order
// of ranks, so a sum is rounded once. Small operations gain: one latency instead of n-1.
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_direct_reduce_scatter(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "direct");
  Builder builder(collective, "direct", n);
  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) {
      Node owner = (node + distance) % n;
      builder.send(node, input(owner), owner);
    }
    std::vector<Source> sources;
    for (Node from = 0; from < n; ++from) {
      sources.push_back(from == node ? local(input(node)) : message_from(from));
    }
    builder.reduce(node, output(0), std::move(sources));
  }
  return std::move(builder).build();
}

Schedule plan_direct_all_gather(const Collective& collective) {
  int n = collective.ranks;
  Builder builder(collective, "direct", n);
  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) {
      Node from = (node + n - distance) % n;
      builder.send(node, input(0), (node + distance) % n);
      builder.recv(node, output(from), from);
    }
    builder.copy(node, output(node), input(0));
  }
  return std::move(builder).build();
}

Schedule plan_direct_all_to_all(const Collective& collective) {
  int n = collective.ranks;
  Builder builder(collective, "direct", n);
  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) {
      Node to = (node + distance) % n;
      Node from = (node + n - distance) % n;
      builder.send(node, input(to), to);
      builder.recv(node, output(from), from);
    }
    builder.copy(node, output(node), input(node));
  }
  return std::move(builder).build();
}

}  // namespace braid
