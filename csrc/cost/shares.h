// SPDX-License-Identifier: Apache-2.0
// How much of a vector each rank should own in a direct all-reduce when the ranks' network cards differ.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace braid {

// Rank i sends and receives (1 + (n-2) x_i) S. The x with sum 1 that let the last card be done first are
//   T = max(S / min b, 2(n-1) S / sum b),   x_i = (T b_i / S - 1) / (n-2),   scaled to sum 1,
// b_i being the rank's slower direction. T is a lower bound for every reduce-then-broadcast scheme, so no tree or
// ring is faster; and it is reached only when segments overlap (out of a slow card with one, in with the next):
// with a single segment equal shares are best. Returns whole weights (their unit is 2^-20 of the vector), the same
// on all ranks that share the topology; empty, which means equal, where all cards are alike or there are fewer
// than three ranks.
std::vector<uint64_t> optimal_shares(const Topology& topology);

}  // namespace braid
