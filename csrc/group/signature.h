// SPDX-License-Identifier: Apache-2.0
// The signature of an operation, which ranks compare, and which each frame carries (transport/frame.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "communicator/communicator.h"
#include "transport/frame.h"

namespace braid {

struct Route;

Signature signature_for(const Operation& operation, const Route& route);

// The digest that the notices of an operation carry, so that notices of another operation are told apart.
uint64_t digest_of(uint64_t sequence, const Signature& signature);

// The total size of the input, or of the output if that is larger. On an aggregator, which has neither:
// operation.bytes.
size_t memory_bytes(const Operation& operation);

}  // namespace braid
