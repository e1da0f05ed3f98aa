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
// Both return whole weights (their unit is 2^-20 of the vector), the same on all ranks that share the topology;
// empty, which means equal, where equal shares take at most 1 % longer than the best ones. The best ones let the
// last NIC be done first: csrc/cost/split.h says how. A host behind a slow NIC may get 0. Links of their own
// (set_link) are not looked at.
//
// That time is reached only when segments overlap (out of a slow NIC with one, in with the next): with a single
// segment equal shares are best.

// A weight per node, for `direct` among n ranks and their aggregators. A host with g ranks and the share X of
// the vector sends g (1-X) to owners elsewhere and X to n-g ranks, and receives as much: g + (n - 2g) X, whoever
// on the host owns X. So on a host with ranks they own it all, in equal parts, and an aggregator beside them
// gets 0: nothing more goes through the NIC for it. Aggregators that share a host of their own get equal parts.
std::vector<uint64_t> rank_shares(const Topology& topology, int aggregators = 0);

// A weight per host of ranks, in the order of Topology::numbered_hosts(), and one per aggregator, for a direct
// all-reduce among H hosts each of which sends and receives as if it were one rank: 1 + (H-2) X.
std::vector<uint64_t> host_shares(const Topology& topology, int aggregators = 0);

}  // namespace braid
