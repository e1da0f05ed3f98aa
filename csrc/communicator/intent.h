// SPDX-License-Identifier: Apache-2.0
// What an operation is, in the words that ranks compare and messages carry.
#pragma once

#include <cstddef>
#include <cstdint>

#include "communicator/communicator.h"
#include "transport/frame.h"

namespace braid {

struct Route;

Intent intent_for(const Operation& operation, const Route& route);

// What the notices of an operation carry, so that those of another are not taken for its own.
uint64_t digest_of(uint64_t sequence, const Intent& intent);

// Of the input, or of the output if that is larger.
size_t memory_bytes(const Operation& operation);

}  // namespace braid
