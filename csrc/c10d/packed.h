// SPDX-License-Identifier: Apache-2.0
// Many small operations of one kind as one: their blocks are copied end to end, and back when it has ended. An
// operation costs its messages whatever its size; for small tensors that is far more than two copies. The bytes
// are copied as they are, and not as csrc/bucket would, to float32: 16-bit floats stay half as long on the wire,
// and an average is divided where its sum is completed.
#pragma once

#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

// The same calls, but small ones of one dtype have become one, at the place of the first of them. What is packed
// depends on nothing but sizes and dtypes, on which the ranks have to agree anyway. `rank` is the caller's own. Inputs
// are read here and now: what an operation under way has yet to write into them is not seen.
// REQUIRES: all_reduces, all_gathers or reduce_scatters with the same operator and options.
std::vector<Call> packed(std::vector<Call> calls, int rank, bool between_hosts);

}  // namespace braid::adapter
