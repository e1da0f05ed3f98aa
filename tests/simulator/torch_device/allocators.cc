// SPDX-License-Identifier: Apache-2.0
#include "allocators.h"

#include <c10/util/Exception.h>

#include <cstring>

#include "current_stream.h"

namespace simulated {
namespace {

using simulator::Blocks;

void free_device(void* block) { device_blocks().give_back(block); }
void free_pinned(void* block) { pinned_blocks().give_back(block); }

std::pair<std::byte*, bool> take(Blocks& blocks, size_t bytes, int64_t owner) {
  const auto taken = blocks.take(bytes, owner);
  TORCH_CHECK(taken.first != nullptr, "the simulated device is out of memory");
  return taken;
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, device()};
    const auto [block, used] = take(device_blocks(), bytes, current_id());
    if (used) current_stream().push([alias = alias_of(block), bytes] { simulator::poison(alias, bytes); }, false);
    return {block, block, &free_device, device()};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_device; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    current_stream().push([to = alias_of(to), from = alias_of(from), bytes] { std::memcpy(to, from, bytes); });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const at::DataPtr& pointer, c10::Stream) override {
    if (pointer.get() != nullptr) device_blocks().never_reuse(pointer.get());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

class PinnedMemory final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, at::kCPU};
    std::byte* block = take(pinned_blocks(), bytes, 0).first;
    return {block, block, &free_pinned, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

Blocks& device_blocks() {
  static auto& blocks = *new Blocks(Blocks::Access::kStreams);
  return blocks;
}

Blocks& pinned_blocks() {
  static auto& blocks = *new Blocks(Blocks::Access::kHost);
  return blocks;
}

std::byte* alias_of(const void* visible) {
  if (visible == nullptr) return nullptr;
  TORCH_CHECK(device_blocks().holds(visible), "this is no memory of the simulated device");
  return device_blocks().alias_of(visible);
}

c10::DeviceAllocator& device_allocator() {
  static auto& allocator = *new DeviceMemory;
  return allocator;
}

at::HostAllocator& host_allocator() {
  static auto& allocator = *new PinnedMemory;
  return allocator;
}

bool is_pinned(const void* address) { return pinned_blocks().holds(address); }

}  // namespace simulated
