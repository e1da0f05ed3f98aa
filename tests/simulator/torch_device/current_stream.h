// SPDX-License-Identifier: Apache-2.0
// The streams of the simulated device by torch's numbers, and each thread's current one.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "core/streams.h"

namespace simulated {

// Stream 0 is the default stream. Jobs run below autograd.
simulator::Stream& stream(c10::StreamId id);
c10::StreamId stream_from_pool();  // the streams of the pool, in turn
c10::StreamId new_stream();
// The streams of this device can wait for a number in pinned memory: Flags::wait of the adapter.
bool wait_for_flag(int64_t stream, void* native, const uint32_t* word, uint32_t value);
bool write_flag(int64_t stream, void* native, uint32_t* word, uint32_t value);

// Of this thread.
c10::StreamId current_id();
c10::StreamId exchange_current_id(c10::StreamId id);
simulator::Stream& current_stream();

inline c10::Device device() { return {c10::kPrivateUse1, 0}; }
inline c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }

}  // namespace simulated
