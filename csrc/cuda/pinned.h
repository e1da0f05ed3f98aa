// SPDX-License-Identifier: Apache-2.0
// Page-locked memory of the host. It takes long to make, so freed blocks are kept for the next use, up to a bound.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::cuda {

// Thread-safe. The driver must outlive the pool, and the pool its blocks.
class PinnedPool {
 public:
  // So many bytes of freed blocks are kept.
  static constexpr size_t kMostIdleBytes = size_t{256} << 20;

  PinnedPool(const Driver& driver, CuContext context) : driver_(driver), context_(context) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least `bytes` long. What it holds is undefined. kSystem where the driver gives none.
  Result<void*> take(size_t bytes);
  // REQUIRES: no copy from or to the block is under way.
  void give_back(void* block, size_t bytes);

  size_t idle_bytes() const;

 private:
  const Driver& driver_;
  const CuContext context_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> idle_;  // by size; guarded by mutex_
  size_t idle_bytes_ = 0;                      // guarded by mutex_
};

}  // namespace braid::cuda
