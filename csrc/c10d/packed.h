// SPDX-License-Identifier: Apache-2.0
// Packs many small operations of one kind into one. Their blocks are copied end to end, and the results are copied
// back at the end. The messages of an operation have a fixed cost, far more than two copies of a small tensor. The
// bytes are copied unchanged; csrc/bucket would convert them to float32. So 16-bit floats stay half as long on the
// wire, and an average is divided where its sum is completed.
#pragma once

#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

// Returns the calls, with the small calls of each dtype packed into one, at the place of the first. The result
// depends only on sizes and dtypes, on which the ranks must agree anyway. `rank`: the caller's rank. Inputs are
// read now. So later writes of operations under way are not seen.
// REQUIRES: all_reduces, all_gathers or reduce_scatters with the same operator and options.
std::vector<Call> packed(std::vector<Call> calls, int rank, bool between_hosts);

}  // namespace braid::adapter
