// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "verify/verify.h"

namespace braid {

// Can messages between hosts be encoded with a loss, each contribution once and each sum once, so that all ranks
// still end with the same bits? That is: the schedule is an all_reduce or a reduce_scatter of ranks alone on two
// hosts or more, and
//   1. every chunk is completed by one reduce of one rank, its owner, and by no other;
//   2. what goes to another host is a contribution to such a reduce, or a sum that its owner sends, all of it as
//      it was completed, to be kept; a reduce_scatter sends no sums;
//   3. nothing else is added to what came from another host.
// `hosts` has a number per node.
bool has_owners(const VerifiedSchedule& schedule, const std::vector<int>& hosts);

}  // namespace braid
