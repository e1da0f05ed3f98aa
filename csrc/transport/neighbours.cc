// SPDX-License-Identifier: Apache-2.0
#include "transport/neighbours.h"

#include <algorithm>

namespace braid {

void Neighbours::add(const DoorbellWord& bell) {
  const std::lock_guard lock(mutex_);
  bells_.push_back(&bell);
}

void Neighbours::remove(const DoorbellWord& bell) {
  if (pid_ != ::getpid()) return;
  const std::lock_guard lock(mutex_);
  bells_.erase(std::remove(bells_.begin(), bells_.end(), &bell), bells_.end());
}

bool Neighbours::any_on(uint32_t core) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && std::any_of(bells_.begin(), bells_.end(), [core](const DoorbellWord* bell) {
           return bell->core.load(std::memory_order_relaxed) == core;
         });
}

}  // namespace braid
