// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "planner/planners.h"
#include "topology/topology.h"

namespace braid {

// What shares (of PlanOptions) a family may be drawn with on a topology whose last `aggregators` nodes are such;
// at least one set, and of equally good ones the first is to be taken. Those asked for, one weight per node, are
// all there is when there are any; those that do not fit are passed on for the planner to refuse. Else equal
// ones, and those that suit the NICs. With aggregators first the same with nothing for them, which costs hardly
// more than their not being there.
std::vector<std::vector<uint64_t>> shares_to_try(const Family& family, const Topology& topology, int aggregators,
                                                 const std::vector<uint64_t>& asked_for);

}  // namespace braid
