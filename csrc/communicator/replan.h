// SPDX-License-Identifier: Apache-2.0
// Now and then, between two collectives and on all ranks between the same two, the ranks look up: has what a
// NIC passes changed, has an aggregator come? All hear what the first rank makes of it, and do it.
#pragma once

#include <atomic>
#include <thread>

#include "communicator/group.h"
#include "engine/progress.h"

namespace braid {

// A place in the group's queue. The replan is done by a thread of its own, for it waits for others: the progress
// thread has other groups to carry.
class ReplanTask final : public Task {
 public:
  // `deadline`: of the operation after it.
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
