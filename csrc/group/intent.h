// SPDX-License-Identifier: Apache-2.0
// The intent of an operation: ranks compare it, and messages carry it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "communicator/communicator.h"
#include "transport/frame.h"

namespace braid {

struct Route;

Intent intent_for(const Operation& operation, const Route& route);

// The digest that the notices of an operation carry, so that notices of another operation are told apart.
uint64_t digest_of(uint64_t sequence, const Intent& intent);

// The total size of the input, or of the output if that is larger.
size_t memory_bytes(const Operation& operation);

}  // namespace braid
