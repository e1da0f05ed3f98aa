// SPDX-License-Identifier: Apache-2.0
// Many small all_reduces as one: their tensors are copied into one vector, and back when it is reduced. An
// operation costs its messages whatever its size; for small tensors that is far more than two copies. The bytes
// are copied as they are, and not as csrc/bucket would, to float32: 16-bit floats stay half as long on the wire,
// and an average is divided where its sum is completed.
#pragma once

#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

// The same calls, but those of up to `most_bytes` that reduce the same dtype have become one, at the place of the
// first of them. What is packed depends on nothing but sizes and dtypes, on which the ranks have to agree anyway.
// REQUIRES: all_reduces with the same operator and options.
std::vector<Call> packed(std::vector<Call> calls, size_t most_bytes);

}  // namespace braid::adapter
