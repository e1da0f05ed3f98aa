// SPDX-License-Identifier: Apache-2.0
// Replanning. Now and then all ranks stop between the same two collectives. Has the rate of a NIC changed? Has an
// aggregator come? The first rank decides, and all ranks do what it says.
#pragma once

#include <atomic>
#include <thread>

#include "engine/progress.h"
#include "group/group.h"

namespace braid {

// A replan in the group's queue. It runs in a thread of its own, because it waits for other ranks and the progress
// thread must carry other groups.
class ReplanTask final : public Task {
 public:
  // `deadline`: the deadline of the next operation in the queue.
  ReplanTask(Group& group, Deadline deadline) : group_(group), deadline_(deadline) {}
  ~ReplanTask() override;

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return kNoDeadline; }
  bool fail(const Status& why) override;

 private:
  Group& group_;
  const Deadline deadline_;
  std::thread thread_;
  std::atomic<bool> done_{false};
};

}  // namespace braid
