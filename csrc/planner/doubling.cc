// SPDX-License-Identifier: Apache-2.0
// All-reduce by recursive doubling: in round k, partners at distance 2^k swap their vectors, and both add the two.
//
//   round 0:  0 <-> 1   2 <-> 3
//   round 1:  0 <-> 2   1 <-> 3
//
// Both partners add the same two operands, so all ranks end with the same bits. A number of ranks that is no power
// of two is folded first (see fold.h).
// Rounds: log2 n, two more when folded. Sent per rank: S log2 n. One chunk.
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
#include "planner/alone.h"
#include "planner/fold.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_doubling(const Collective& collective) {
  if (collective.ranks == 1) return plan_alone(collective, "doubling");
  Builder builder(collective, "doubling", 1);
  Fold fold(collective.ranks);
  fold.fold_in(builder, 1);
  for (int distance = 1; distance < fold.active(); distance *= 2) {
    for (int position = 0; position < fold.active(); ++position) {
      Node node = fold.node(position);
      Node partner = fold.node(position ^ distance);
      Ref held = distance == 1 ? fold.held(position, 0, 1) : output(0);
      builder.send(node, held, partner);
      builder.reduce(node, output(0), {local(held), message_from(partner)});
    }
    builder.end_round();
  }
  fold.fold_out(builder, 1);
  return std::move(builder).build();
}

}  // namespace braid
