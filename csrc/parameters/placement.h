// SPDX-License-Identifier: Apache-2.0
// Which server holds which part of the vector.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "parameters/server.h"

namespace braid {

// Parts of a vector begin at multiples of so many elements: a cache line.
inline constexpr size_t kGranule = 16;

// Cuts a vector into one part per server. `shares`: relative sizes, empty for equal ones. Parts may be
// empty. kInvalidArgument for shares that are negative, not finite or all zero.
Result<std::vector<Extent>> place(size_t elements, size_t servers, const std::vector<double>& shares);

// Which shards a server that has come late should get, the first one first: those that make the fullest server less
// full, one by one. `homes`: by shard, the place of its server. `weights`: by place, the relative size of what it
// should hold. The newcomer, the last place, gets `most` numbers at most.
std::vector<size_t> shares_for_newcomer(const std::vector<Extent>& extents, std::vector<int> homes,
                                        const std::vector<double>& weights, uint64_t most);

// The server that takes over from `lost`: the next living one in the circle, or -1.
int successor_of(int lost, const std::vector<bool>& lives);

}  // namespace braid
