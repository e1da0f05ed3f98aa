// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "verify/verify.h"

namespace braid {

// Returns true if messages between hosts may be encoded with a loss, and all ranks still end with the same bits.
// Each contribution and each sum is then encoded once. The schedule must be an all_reduce or a reduce_scatter on
// two hosts or more, without aggregators, and
//   1. exactly one reduce of one rank, the owner, completes each chunk;
//   2. a message to another host is a contribution to such a reduce, or a sum. Only the owner sends the sum, the
//      whole target as its reduce completed it, and the receiver stores it unchanged. A reduce_scatter sends no
//      sums;
//   3. nothing else is added to data from another host.
// `hosts` has a host number per node.
bool has_owners(const VerifiedSchedule& schedule, const std::vector<int>& hosts);

}  // namespace braid
