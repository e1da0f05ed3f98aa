// SPDX-License-Identifier: Apache-2.0
// All-reduce by direct exchange. Node j owns chunk j, of any size. Every rank sends its contribution to chunk j to
// node j. Node j adds all n contributions in one pass in the order of ranks, and sends the sum to every rank. The
// nodes after the n ranks are aggregators: they own chunks and contribute nothing.
//
//   round 0:  to r0: chunk 0 of r1, r2, r3    to r1: chunk 1 of r0, r2, r3    ...
//   round 1:  r0 -> all: sum 0                r1 -> all: sum 1                ...
//
// Rounds: 2. Sent by rank j with share x_j: (1 + (n-2) x_j) S. So a rank behind a slow link can get a small share,
// or 0, which makes its chunk empty. Sent by an aggregator: n x_j S. Equal shares without aggregators: 2(n-1)/n S.
// A sum is rounded once. A chunk per node.
// Jiang et al., "A unified architecture for accelerating distributed DNN training" (BytePS), 2020.
#include <string>

#include "planner/alone.h"
#include "planner/shapes.h"

namespace braid {

Result<Schedule> plan_direct_all_reduce(const Collective& collective, const PlanOptions& options) {
  const int n = collective.ranks;
  const int owners = n + options.aggregators;
  if (!options.shares.empty() && options.shares.size() != static_cast<size_t>(owners)) {
    return Status(Code::kInvalidArgument, "direct: " + std::to_string(options.shares.size()) + " shares for " +
                                              nodes_text(n, options.aggregators));
  }
  if (n == 1) return plan_alone(collective, "direct", options.aggregators);
  Builder builder(collective, "direct", owners, options.aggregators);
  builder.set_shares(options.shares);
  auto sum = [n](Node owner) { return owner < n ? output(owner) : scratch(owner); };

  for (Node node = 0; node < owners; ++node) {
    for (int distance = 1; node < n && distance < owners;
         ++distance) {  // every node starts with another owner: no incast
      Node owner = (node + distance) % owners;
      builder.send(node, input(owner), owner);
    }
    std::vector<Source> sources;
    for (Node from = 0; from < n; ++from) {
      sources.push_back(from == node ? local(input(node)) : message_from(from));
    }
    builder.reduce(node, sum(node), std::move(sources));
  }
  builder.end_round();
  for (Node node = 0; node < owners; ++node) {
    for (int distance = 1; distance <= owners; ++distance) {
      Node to = (node + distance) % n;
      if (distance <= n && to != node) builder.send(node, sum(node), to);
      Node owner = (node + owners - distance) % owners;
      if (node < n && owner != node) builder.recv(node, output(owner), owner);
    }
  }
  return std::move(builder).build();
}

}  // namespace braid
