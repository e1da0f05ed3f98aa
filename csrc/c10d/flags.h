// SPDX-License-Identifier: Apache-2.0
// Flags: numbers in pinned memory that streams of a device wait for, and write. So copies to the device can be enqueued
// before their values are there, and the host sees the end of copies without asking the device.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace braid::adapter {

// What a device offers. Plain C, because a plug-in that offers it is compiled apart from the adapter.
struct Flags {
  // Enqueues a wait: later jobs of the stream run when the word is `value` or more. `native`: the handle of the stream
  // for the device's own library, or null. False if the device cannot; then nothing was enqueued.
  bool (*wait)(int64_t stream, void* native, const uint32_t* word, uint32_t value) = nullptr;
  // Enqueues a write: the word gets the value after earlier jobs of the stream. False as above.
  bool (*write)(int64_t stream, void* native, uint32_t* word, uint32_t value) = nullptr;
};

// Sets the flags of a device.
void offer_flags(c10::DeviceType type, Flags flags);
// True if streams of the device can wait for flags, and BRAID_STREAM_WAITS is 1.
bool has_flags(c10::DeviceType type);
// Makes a stream wait, or write. REQUIRES: has_flags(). False: see Flags.
bool wait_for_flag(const c10::Stream& stream, const uint32_t* word, uint32_t value);
bool write_flag(const c10::Stream& stream, uint32_t* word, uint32_t value);

}  // namespace braid::adapter
