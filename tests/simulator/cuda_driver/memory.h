// SPDX-License-Identifier: Apache-2.0
// Memory of the executing driver. The host cannot touch the caller's device addresses; the threads of the streams use
// the same memory at another address. Freed memory holds poison.
#pragma once

#include <cstddef>
#include <cstdint>

namespace executing {

using Address = unsigned long long;

// 0 where there is no room.
Address take_device(size_t bytes, int device);
bool free_device(Address address);
// Where the streams find these bytes; null unless they all lie in one live block.
std::byte* alias_of(Address address, size_t bytes);
// -1 where it is no device memory.
int device_of(Address address);

void* take_pinned(size_t bytes);
bool free_pinned(void* block);
// Page-locks memory of the caller, which stays the caller's.
bool add_registered(void* begin, size_t bytes);
bool remove_registered(void* begin);
bool is_pinned(const void* address, size_t bytes);

size_t live_device_bytes();
size_t live_pinned_bytes();

}  // namespace executing
