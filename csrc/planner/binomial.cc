// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce on a binomial tree. Ranks are counted from the root: position 0 is the root.
//
//   broadcast, round 0:  0 -> 1           reduce, round 0:  1 -> 0   3 -> 2
//              round 1:  0 -> 2   1 -> 3          round 1:  2 -> 0
//
// In round k of a broadcast the first 2^k positions have the vector. Each position p sends it to position p + 2^k.
// In round k of a reduce, each position p that is an odd multiple of 2^k sends its partial sum to position p -
// 2^k. Ranks other than the root keep partial sums in scratch, because they must not write to their input.
// Rounds: ceil(log2 n). Sent by the root of a broadcast: S log2 n. One chunk.
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_binomial_broadcast(const Collective& collective) {
  int n = collective.ranks;
  Builder builder(collective, "binomial", 1);
  auto node = [&](int position) { return (position + collective.root) % n; };
  builder.copy(collective.root, output(0), input(0));
  for (int reached = 1; reached < n; reached *= 2) {
    for (int position = 0; position < reached && position + reached < n; ++position) {
      builder.send(node(position), position == 0 ? input(0) : output(0), node(position + reached));
      builder.recv(node(position + reached), output(0), node(position));
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

Schedule plan_binomial_reduce(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "binomial");
  Builder builder(collective, "binomial", 1);
  auto node = [&](int position) { return (position + collective.root) % n; };
  auto sum = [](int position) { return position == 0 ? output(0) : scratch(0); };
  for (int distance = 1; distance < n; distance *= 2) {
    // A position holds a partial sum only if it had a partner in round 0.
    auto held = [&](int position) { return distance == 1 || position + 1 >= n ? input(0) : sum(position); };
    for (int to = 0; to + distance < n; to += 2 * distance) {
      int from = to + distance;
      builder.send(node(from), held(from), node(to));
      builder.reduce(node(to), sum(to), {local(held(to)), message_from(node(from))});
    }
    builder.end_round();
  }
  return std::move(builder).build();
}

}  // namespace braid
