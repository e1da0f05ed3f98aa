// SPDX-License-Identifier: Apache-2.0
#include "cuda_driver/memory.h"

#include <iterator>
#include <map>
#include <mutex>

#include "core/memory.h"

namespace executing {
namespace {

using simulator::Blocks;

struct Memory {
  Blocks device{Blocks::Access::kStreams};  // the owner of a block is its device
  Blocks pinned{Blocks::Access::kHost};
  std::mutex mutex;
  std::map<uintptr_t, size_t> registered;
};

Memory& memory() {
  static Memory& of_process = *new Memory;
  return of_process;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

Address take_device(size_t bytes, int device) {
  return reinterpret_cast<Address>(memory().device.take(bytes, device).first);
}

bool free_device(Address address) {
  const auto block = memory().device.find(pointer(address), 1);
  if (!block || block->begin != pointer(address)) return false;
  simulator::poison(memory().device.alias_of(block->begin), block->bytes);
  return memory().device.give_back(block->begin).has_value();
}

std::byte* alias_of(Address address, size_t bytes) {
  const auto block = memory().device.find(pointer(address), bytes);
  return block ? memory().device.alias_of(pointer(address)) : nullptr;
}

int device_of(Address address) {
  const auto block = memory().device.find(pointer(address), 1);
  return block ? static_cast<int>(block->owner) : -1;
}

void* take_pinned(size_t bytes) { return memory().pinned.take(bytes, 0).first; }

bool free_pinned(void* begin) {
  const auto block = memory().pinned.find(begin, 1);
  if (!block || block->begin != begin) return false;
  memory().pinned.never_reuse(begin);  // a copy that comes too late finds poison
  simulator::poison(begin, block->bytes);
  return memory().pinned.give_back(begin).has_value();
}

bool add_registered(void* begin, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().registered.emplace(reinterpret_cast<uintptr_t>(begin), bytes).second;
}

bool remove_registered(void* begin) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().registered.erase(reinterpret_cast<uintptr_t>(begin)) == 1;
}

bool is_pinned(const void* address, size_t bytes) {
  if (memory().pinned.find(address, bytes)) return true;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto after = memory().registered.upper_bound(begin);
  if (after == memory().registered.begin()) return false;
  const auto& [first, registered_bytes] = *std::prev(after);
  return begin + bytes <= first + registered_bytes;
}

size_t live_device_bytes() { return memory().device.live_bytes(); }
size_t live_pinned_bytes() { return memory().pinned.live_bytes(); }

}  // namespace executing
