// SPDX-License-Identifier: Apache-2.0
// All-reduce in one shot: every rank sends its whole vector to every other rank. All ranks add the n vectors in
// one pass, in the order of ranks.
//
//   r0 -> r1, r2, r3    r1 -> r2, r3, r0    r2 -> r3, r0, r1    r3 -> r0, r1, r2
//
// Rounds: 1. Sent per rank: (n-1) S. So it suits only tiny tensors, for which the time is one latency. A sum is
// rounded once, and is equal on all ranks because the order is. One chunk.
// The "one-shot" all-reduce of inference engines (TensorRT-LLM); as an all-gather, Bruck et al. 1997.
#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Schedule plan_gather_all(const Collective& collective) {
  int n = collective.ranks;
  if (n == 1) return plan_alone(collective, "gather_all");
  Builder builder(collective, "gather_all", 1);
  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) builder.send(node, input(0), (node + distance) % n);
    std::vector<Source> sources;
    for (Node from = 0; from < n; ++from) {
      sources.push_back(from == node ? local(input(0)) : message_from(from));
    }
    builder.reduce(node, output(0), std::move(sources));
  }
  return std::move(builder).build();
}

}  // namespace braid
