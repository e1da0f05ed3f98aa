// SPDX-License-Identifier: Apache-2.0
// An operation of a worker on all shards at once, as its caller holds it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "parameters/client.h"

namespace braid {

class ParameterRequest {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done(), as for all below.
  const Status& status() const { return status_; }
  // The largest of the shards; 0 for pulls.
  uint32_t staleness() const;
  // Per shard: the number of updates in the values that came.
  const std::vector<uint64_t>& versions() const { return versions_; }
  // Per shard, for snapshots: updates so far.
  std::vector<uint64_t> steps() const;
  // Parts of the update that went to a server that died meanwhile. They may be lost.
  int lost_parts() const { return lost_parts_; }
  // By then it should be done. It may wait for other workers, so it goes on.
  Deadline due() const { return due_; }

 private:
  friend class ParameterService;

  std::deque<ClientCall> calls_;  // by shard
  std::deque<int> places_;        // of the servers that were called
  std::deque<bool> is_parked_;    // calls that wait until their shard has a home
  std::deque<bool> is_noted_;     // ParameterService::note_push()
  CallKind kind_ = CallKind::kPull;
  bool has_number_ = true;  // a push that names its number
  std::vector<uint64_t> versions_;
  // Once it is done: a whole vector of values for a rescue, or null.
  const float* newest_ = nullptr;
  std::shared_ptr<const void> owner_;  // of the caller's memory
  Deadline due_ = kNoDeadline;
  Status status_;
  int lost_parts_ = 0;
  std::atomic<bool> done_{false};
};

}  // namespace braid
