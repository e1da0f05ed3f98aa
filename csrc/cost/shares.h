// SPDX-License-Identifier: Apache-2.0
// How much of a vector each owner should own in a direct all-reduce when NICs differ. Owners are the ranks, or the
// hosts, and the aggregators.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace braid {

// The last `aggregators` nodes of a topology are aggregators; the other nodes, at least one, are ranks.
// REQUIRES (both): 0 <= aggregators < topology.nodes().
//
// Both functions return whole weights, in units of 2^-20 of the vector. All ranks with the same topology get the
// same weights. With the best shares the last NIC is done as early as possible (csrc/cost/split.h). An empty
// result means equal shares: they take at most 1 % longer than the best shares. A host behind a slow NIC may get
// 0. Links set by set_link() are ignored.
//
// The best shares need segments that overlap: a slow NIC sends one segment while it receives the next. With a
// single segment equal shares are best.

// Returns a weight per node, for `direct` among n ranks and their aggregators. A host with g ranks that owns the
// share X of the vector sends g (1-X) to owners elsewhere and X to each of n-g ranks: g + (n - 2g) X in all. It
// receives as much. The sum is the same whichever node of the host owns X. So the ranks of a host own X in equal
// parts. An aggregator beside ranks gets 0, so that it puts no more bytes on the NIC. Aggregators on a host
// without ranks get equal parts.
std::vector<uint64_t> rank_shares(const Topology& topology, int aggregators = 0);

// Returns a weight per host of ranks, in the order of Topology::numbered_hosts(), and then one per aggregator. The
// weights are for a direct all-reduce among H hosts. Each host sends and receives as one rank does: 1 + (H-2) X.
std::vector<uint64_t> host_shares(const Topology& topology, int aggregators = 0);

}  // namespace braid
