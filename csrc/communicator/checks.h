// SPDX-License-Identifier: Apache-2.0
// Refuses operations whose arguments make no sense, before anything moves.
#pragma once

#include "base/status.h"
#include "communicator/communicator.h"

namespace braid {

// kInvalidArgument says what is wrong and what would be right.
Status check_operation(const Operation& operation, Node rank, int ranks);

// The part of it that depends on where the blocks lie.
Status check_overlap(const Operation& operation, Node rank);

// kInvalidArgument unless the codec can carry it, in fewer bytes than it has.
Status check_lossy(CollectiveKind kind, DType dtype, ReduceOp op, const Codec& codec);

// Whether all ranks know the size of such an operation, so that an algorithm may be chosen by it. Not so for
// all_to_all, gather and scatter, where each knows its own blocks only.
bool is_size_agreed(CollectiveKind kind);
// The size that all ranks agree on and that the algorithm is chosen by: the vector's, or all blocks of the larger
// side together; 0 where ranks may differ.
int64_t agreed_bytes(const Operation& operation);

}  // namespace braid
