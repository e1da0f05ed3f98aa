// SPDX-License-Identifier: Apache-2.0
// The collectives with a root, in a single round: the root exchanges messages with every other rank.
//
//   root 0:  r0 <-> r1, r0 <-> r2, r0 <-> r3
//
// Rounds: 1. Sent or received by the root: (n-1) S; by every other rank: S. In reduce the root adds all n
// contributions in one pass in the order of ranks, so the sum is rounded once. Best for few ranks or small
// tensors. Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and
// experience", 2007.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_direct_broadcast(const Collective& collective) {
  Builder builder(collective, "direct", 1);
  Node root = collective.root;
  for (Node node = 0; node < collective.ranks; ++node) {
    if (node == root) continue;
    builder.send(root, input(0), node);
    builder.recv(node, output(0), root);
  }
  builder.copy(root, output(0), input(0));
  return std::move(builder).build();
}

Schedule plan_direct_reduce(const Collective& collective) {
  if (collective.ranks == 1) return plan_alone(collective, "direct");
  Builder builder(collective, "direct", 1);
  std::vector<Source> sources;
  for (Node node = 0; node < collective.ranks; ++node) {
    if (node == collective.root) {
      sources.push_back(local(input(0)));
    } else {
      builder.send(node, input(0), collective.root);
      sources.push_back(message_from(node));
    }
  }
  builder.reduce(collective.root, output(0), std::move(sources));
  return std::move(builder).build();
}

Schedule plan_direct_gather(const Collective& collective) {
  Builder builder(collective, "direct", collective.ranks);
  Node root = collective.root;
  for (Node node = 0; node < collective.ranks; ++node) {
    if (node == root) continue;
    builder.send(node, input(0), root);
    builder.recv(root, output(node), node);
  }
  builder.copy(root, output(root), input(0));
  return std::move(builder).build();
}

Schedule plan_direct_scatter(const Collective& collective) {
  Builder builder(collective, "direct", collective.ranks);
  Node root = collective.root;
  for (Node node = 0; node < collective.ranks; ++node) {
    if (node == root) continue;
    builder.send(root, input(node), node);
    builder.recv(node, output(0), root);
  }
  builder.copy(root, output(0), input(root));
  return std::move(builder).build();
}

}  // namespace braid
