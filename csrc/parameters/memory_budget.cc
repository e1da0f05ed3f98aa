// SPDX-License-Identifier: Apache-2.0
#include "parameters/memory_budget.h"

namespace braid {

bool MemoryBudget::take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

void MemoryBudget::give_back(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  left_ += bytes;
}

uint64_t MemoryBudget::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}

bool MemoryShare::reach(uint64_t bytes) {
  const uint64_t has = promised_ + beyond_;
  if (!budget_ || bytes <= has) return true;
  if (!budget_->take(bytes - has)) return false;
  beyond_ += bytes - has;
  return true;
}

}  // namespace braid
