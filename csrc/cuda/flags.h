// SPDX-License-Identifier: Apache-2.0
// Streams that wait for a number in pinned host memory, and write one there.
#pragma once

#include <cstdint>

#include "cuda/driver.h"

namespace braid::cuda {

// True if there is a driver, and it has both. Opens the driver at the first call.
bool has_flags();
// Enqueues a wait: later work of the stream runs when the word is `value` or more, also where the count wraps. `word`
// lies in host memory that CUDA has pinned. False if the driver refuses; then nothing was enqueued.
bool wait_for_flag(CuStream stream, const uint32_t* word, uint32_t value);
// Enqueues a write: the word becomes `value` when earlier work of the stream has run, and the host sees that work.
// False if the driver refuses; then nothing was enqueued.
bool write_flag(CuStream stream, uint32_t* word, uint32_t value);
// The same with a driver of the caller's choice, for tests.
bool wait_for_flag(const Driver& driver, CuStream stream, const uint32_t* word, uint32_t value);
bool write_flag(const Driver& driver, CuStream stream, uint32_t* word, uint32_t value);

}  // namespace braid::cuda
