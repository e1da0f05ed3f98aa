// SPDX-License-Identifier: Apache-2.0
// How much of a vector each rank, or each host, and each aggregator should own in a direct all-reduce when NICs
// differ.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace braid {

// The last `aggregators` nodes of a topology only add up; the others, at least one, are ranks. REQUIRES (both):
// 0 <= aggregators < topology.nodes().
//
// Both functions return whole weights, in units of 2^-20 of the vector, the same on all ranks with this topology.
// Empty means equal shares: these take at most 1 % longer than the best shares. With the best shares the last NIC
// is done as early as possible (csrc/cost/split.h). A host behind a slow NIC may get 0. Links set by set_link()
// are ignored.
//
// That time needs segments that overlap: a slow NIC sends one while it receives the next. With a single segment
// equal shares are best.

// A weight per node, for `direct` among n ranks and their aggregators. A host with g ranks and the share X of the
// vector sends g (1-X) to owners elsewhere and X to n-g ranks, and receives as much: g + (n - 2g) X. It does not
// matter which node of the host owns X. So on a host with ranks the ranks own it in equal parts. An aggregator
// beside them gets 0, so nothing more goes through the NIC for it. Aggregators that share a host of their own get
// equal parts.
std::vector<uint64_t> rank_shares(const Topology& topology, int aggregators = 0);

// A weight per host of ranks, in the order of Topology::numbered_hosts(), and one per aggregator, for a direct
// all-reduce among H hosts each of which sends and receives as if it were one rank: 1 + (H-2) X.
std::vector<uint64_t> host_shares(const Topology& topology, int aggregators = 0);

}  // namespace braid
