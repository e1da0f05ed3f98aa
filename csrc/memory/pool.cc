// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <bit>
#include <new>
#include <utility>

#include "base/caught.h"

namespace braid {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

Pool::~Pool() {
  for (const Bytes& block : free_) ::operator delete(block.data(), kAlignment);
}

PoolBlock Pool::take(size_t bytes) {
  const size_t size = std::bit_ceil(bytes < 64 ? size_t{64} : bytes);
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = free_.size(); i-- > 0;) {
      if (free_[i].size() != size) continue;
      const Bytes block = free_[i];
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      kept_bytes_ -= size;
      return {*this, block};
    }
  }
  return {*this, {static_cast<std::byte*>(::operator new(size, kAlignment)), size}};
}

void Pool::give_back(std::byte* data, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes <= keep_bytes_) {
      make_room_for(bytes);
      if (caught("keeping a block", [&] { free_.push_back({data, bytes}); }).ok()) {
        kept_bytes_ += bytes;
        return;
      }
    }
  }
  ::operator delete(data, kAlignment);
}

// Frees the block that was unused for the longest time first, because the sizes in use change.
void Pool::make_room_for(size_t bytes) {
  while (kept_bytes_ + bytes > keep_bytes_) {
    kept_bytes_ -= free_.front().size();
    ::operator delete(free_.front().data(), kAlignment);
    free_.erase(free_.begin());
  }
}

size_t Pool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

PoolBlock& PoolBlock::operator=(PoolBlock&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PoolBlock::~PoolBlock() {
  if (pool_ != nullptr) pool_->give_back(bytes_.data(), bytes_.size());
}

}  // namespace braid
