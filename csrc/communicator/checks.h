// SPDX-License-Identifier: Apache-2.0
// Refuses operations with wrong arguments, before anything moves.
#pragma once

#include "base/status.h"
#include "communicator/communicator.h"

namespace braid {

// kInvalidArgument names the error and the correct value.
Status check_operation(const Operation& operation, Node rank, int ranks);

// The part of check_operation() that depends on the addresses of the blocks.
Status check_overlap(const Operation& operation, Node rank);

// kInvalidArgument unless the codec can encode the operation. For 16-bit floats it must also make them smaller.
Status check_lossy(CollectiveKind kind, DType dtype, ReduceOp op, const Codec& codec);

// True if all ranks know the size of such an operation, so that it may decide the algorithm. False for all_to_all,
// gather and scatter: there a rank knows its own blocks only.
bool is_size_agreed(CollectiveKind kind);
// The size that decides the algorithm; equal on all ranks. It is the size of the vector, or of all blocks of the
// larger side together. 0 if !is_size_agreed().
int64_t agreed_bytes(const Operation& operation);

}  // namespace braid
