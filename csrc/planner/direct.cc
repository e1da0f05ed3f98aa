// SPDX-License-Identifier: Apache-2.0
// All-reduce by direct exchange: rank j owns chunk j, of any size. Everybody sends it there, j adds all n
// contributions in one pass in the order of ranks, and sends the sum back to everybody.
//
//   round 0:  to r0: chunk 0 of r1, r2, r3    to r1: chunk 1 of r0, r2, r3    ...
//   round 1:  r0 -> all: sum 0                r1 -> all: sum 1                ...
//
// Rounds: 2. Sent by rank j with share x_j: (1 + (n-2) x_j) S, so a slow link can be given a small share, down to
// 0: its chunk is then empty. Equal shares: 2(n-1)/n S. A sum is rounded once. n chunks.
// Jiang et al., "A unified architecture for accelerating distributed DNN training" (BytePS), 2020.
#include <string>

#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Result<Schedule> plan_direct_all_reduce(const Collective& collective, const PlanOptions& options) {
  int n = collective.ranks;
  if (!options.shares.empty() && options.shares.size() != static_cast<size_t>(n)) {
    return Status(Code::kInvalidArgument, "direct: " + std::to_string(options.shares.size()) + " shares for " +
                                              std::to_string(n) + " ranks");
  }
  if (n == 1) return plan_alone(collective, "direct");
  Builder builder(collective, "direct", n);
  builder.set_shares(options.shares);

  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) {  // each starts with another owner: no incast
      Node owner = (node + distance) % n;
      builder.send(node, input(owner), owner);
    }
    std::vector<Source> sources;
    for (Node from = 0; from < n; ++from) {
      sources.push_back(from == node ? local(input(node)) : message_from(from));
    }
    builder.reduce(node, output(node), std::move(sources));
  }
  builder.end_round();
  for (Node node = 0; node < n; ++node) {
    for (int distance = 1; distance < n; ++distance) {
      builder.send(node, output(node), (node + distance) % n);
      Node owner = (node + n - distance) % n;
      builder.recv(node, output(owner), owner);
    }
  }
  return std::move(builder).build();
}

}  // namespace braid
