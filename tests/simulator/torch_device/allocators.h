// SPDX-License-Identifier: Apache-2.0
// The allocators of the simulated device for torch.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "core/memory.h"

namespace simulated {

// The memory of all tensors.
simulator::Blocks& device_blocks();
simulator::Blocks& pinned_blocks();

// Where the threads of the streams find the memory of a tensor.
std::byte* alias_of(const void* visible);

// Ordered by stream: a freed block goes back to the stream it was allocated on, and only that stream gets it again.
// It is poisoned when it is allocated again, on the stream of its new owner.
c10::DeviceAllocator& device_allocator();
// Blocks that are freed are given out again at once: it tracks no streams, so nobody may free a block too early.
at::HostAllocator& host_allocator();
bool is_pinned(const void* address);

}  // namespace simulated
