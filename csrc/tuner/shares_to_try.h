// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "planner/planners.h"
#include "topology/topology.h"

namespace braid {

// Returns the sets of shares (see PlanOptions) with which to draw an algorithm, at least one set. The caller takes the
// first of equally good sets. The last `aggregators` nodes of the topology are aggregators.
//
// If `asked_for` is not empty, it is the only set: one weight per node. Weights that do not fit are returned as
// they are, and the planner refuses them. Otherwise the sets are equal shares, and the shares that suit the NICs.
// With aggregators, sets in which they own nothing come first: idle aggregators cost hardly more than none.
std::vector<std::vector<uint64_t>> shares_to_try(const Algorithm& algorithm, const Topology& topology,
                                                 int aggregators, const std::vector<uint64_t>& asked_for);

}  // namespace braid
