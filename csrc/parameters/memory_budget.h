// SPDX-License-Identifier: Apache-2.0
// The memory that the parameter servers of a process may use together (`braid serve --memory`).
//
// Thread safety: all functions of MemoryBudget may be called from any thread. MemoryShare: none.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace braid {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : left_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Takes all of these bytes, or none and returns false.
  bool take(uint64_t bytes);
  void give_back(uint64_t bytes);
  uint64_t left() const;

 private:
  mutable std::mutex mutex_;
  uint64_t left_;
};

// The part of one server: the bytes that were promised to it, and those that it has taken from the budget beyond them.
// The latter go back when it ends.
class MemoryShare {
 public:
  // Without a budget there is no limit.
  MemoryShare(std::shared_ptr<MemoryBudget> budget, uint64_t promised)
      : budget_(std::move(budget)), promised_(promised) {}
  ~MemoryShare() {
    if (budget_) budget_->give_back(beyond_);
  }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

  // Whether the server may use so many bytes in all. If so, they are its own from now on.
  bool reach(uint64_t bytes);

 private:
  const std::shared_ptr<MemoryBudget> budget_;
  const uint64_t promised_;
  uint64_t beyond_ = 0;
};

}  // namespace braid
