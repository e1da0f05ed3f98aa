// SPDX-License-Identifier: Apache-2.0
#include "tuner/shares_to_try.h"

#include <algorithm>
#include <utility>

#include "cost/shares.h"

namespace braid {
namespace {

std::vector<uint64_t> suited(const Algorithm& algorithm, const Topology& topology, int aggregators) {
  return algorithm.hierarchical ? host_shares(topology, aggregators) : rank_shares(topology, aggregators);
}

// Returns one weight per host of ranks, the sum of its ranks' weights, and then the weights of the aggregators.
std::vector<uint64_t> per_host(const std::vector<uint64_t>& of_nodes, const Topology& topology, int aggregators) {
  if (of_nodes.size() != static_cast<size_t>(topology.nodes())) return of_nodes;
  const int ranks = topology.nodes() - aggregators;
  std::vector<uint64_t> sums(topology.first(ranks).host_count(), 0);
  for (int node = 0; node < ranks; ++node) sums[topology.numbered_hosts()[node]] += of_nodes[node];
  sums.insert(sums.end(), of_nodes.begin() + ranks, of_nodes.end());
  return sums;
}

}  // namespace

std::vector<std::vector<uint64_t>> shares_to_try(const Algorithm& algorithm, const Topology& topology,
                                                 int aggregators, const std::vector<uint64_t>& asked_for) {
  if (!algorithm.takes_shares) return {{}};
  if (!asked_for.empty()) return {algorithm.hierarchical ? per_host(asked_for, topology, aggregators) : asked_for};
  std::vector<std::vector<uint64_t>> all;
  const auto add = [&](std::vector<uint64_t> shares) {
    if (std::ranges::find(all, shares) == all.end()) all.push_back(std::move(shares));
  };
  if (aggregators > 0) {
    const Topology ranks = topology.first(topology.nodes() - aggregators);
    const int contributing = algorithm.hierarchical ? ranks.host_count() : ranks.nodes();
    for (std::vector<uint64_t> idle : {std::vector<uint64_t>(contributing, 1), suited(algorithm, ranks, 0)}) {
      if (idle.empty()) continue;
      idle.resize(idle.size() + aggregators, 0);
      add(std::move(idle));
    }
  }
  add({});
  add(suited(algorithm, topology, aggregators));
  return all;
}

}  // namespace braid
