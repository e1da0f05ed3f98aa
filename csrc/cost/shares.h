// SPDX-License-Identifier: Apache-2.0
// How much of a vector each rank, or each host, should own in a direct all-reduce when network cards differ.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace braid {

// Both return whole weights (their unit is 2^-20 of the vector), the same on all ranks that share the topology;
// empty, which means equal, where equal shares take at most 1 % longer than the best ones. The best ones let the
// last card be done first: csrc/cost/split.h says how. A host behind a slow card may get 0. Links of their own
// (set_link) are not looked at.
//
// That time is reached only when segments overlap (out of a slow card with one, in with the next): with a single
// segment equal shares are best.

// A weight per rank, for `direct` among all n ranks. A host with g of them and the share X of the vector sends
// g (1-X) to owners elsewhere and X to n-g ranks, and receives as much: g + (n - 2g) X. Its ranks get equal parts
// of X.
std::vector<uint64_t> rank_shares(const Topology& topology);

// A weight per host, in the order of Topology::numbered_hosts(), for a direct all-reduce among H hosts each of
// which sends and receives as if it were one rank: 1 + (H-2) X.
std::vector<uint64_t> host_shares(const Topology& topology);

}  // namespace braid
