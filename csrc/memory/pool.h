// SPDX-License-Identifier: Apache-2.0
// Keeps working memory for the next operation, so that large operations do not fault in new pages each time.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/span.h"

namespace braid {

// A block of uninitialised memory, aligned to 64 bytes. Returned to its pool when destroyed.
class PoolBlock;

// Thread safe. Must outlive its blocks.
class Pool {
 public:
  // Keeps at most `keep_bytes` of unused blocks: the blocks that were given back last.
  explicit Pool(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes`, rounded up to a power of two.
  PoolBlock take(size_t bytes);
  size_t kept_bytes() const;

 private:
  friend class PoolBlock;
  void give_back(std::byte* data, size_t bytes);
  void make_room_for(size_t bytes);  // REQUIRES: mutex_ is held; bytes <= keep_bytes_

  const size_t keep_bytes_;
  mutable std::mutex mutex_;
  std::vector<Bytes> free_;
  size_t kept_bytes_ = 0;
};

class PoolBlock {
 public:
  PoolBlock() = default;
  PoolBlock(Pool& pool, Bytes bytes) : pool_(&pool), bytes_(bytes) {}
  PoolBlock(PoolBlock&& other) noexcept { *this = std::move(other); }
  PoolBlock& operator=(PoolBlock&& other) noexcept;
  ~PoolBlock();

  std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  Pool* pool_ = nullptr;
  Bytes bytes_;
};

}  // namespace braid
