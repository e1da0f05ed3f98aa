// SPDX-License-Identifier: Apache-2.0
#include "cuda/pinned.h"

#include <algorithm>
#include <bit>
#include <string>

#include "cuda/inside.h"

namespace braid::cuda {
namespace {

constexpr size_t kLeastBytes = 4096;
constexpr size_t kDoublesBelow = size_t{1} << 20;

// Powers of two, and above 1 MiB whole MiB: a block of 65 MiB must not take 128.
size_t size_class(size_t bytes) {
  if (bytes <= kDoublesBelow) return std::bit_ceil(std::max(bytes, kLeastBytes));
  return (bytes + kDoublesBelow - 1) / kDoublesBelow * kDoublesBelow;
}

}  // namespace

Result<void*> PinnedPool::take(size_t bytes) {
  const size_t size = size_class(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (auto& idle = idle_[size]; !idle.empty()) {
      void* const block = idle.back();
      idle.pop_back();
      idle_bytes_ -= size;
      return block;
    }
  }
  const Inside inside(driver_, context_);
  if (!inside.status().ok()) return inside.status();
  void* block = nullptr;
  if (Status s = driver_.check("cuMemHostAlloc", driver_.take_pinned(&block, size, kPortable)); !s.ok()) {
    return s.within("page-locked memory of " + std::to_string(size) + " bytes");
  }
  return block;
}

void PinnedPool::give_back(void* block, size_t bytes) {
  const size_t size = size_class(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + size <= kMostIdleBytes) {
      idle_[size].push_back(block);
      idle_bytes_ += size;
      return;
    }
  }
  const Inside inside(driver_, context_);
  if (inside.status().ok()) driver_.free_pinned(block);
}

size_t PinnedPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace braid::cuda
