// SPDX-License-Identifier: Apache-2.0
// Replanning. Now and then all ranks stop between the same two collectives. Has the rate of a NIC changed? Has an
// aggregator come? The first rank decides, and all ranks do what it says.
#pragma once

#include <atomic>
#include <thread>

#include "communicator/group.h"
#include "engine/progress.h"

namespace braid {

// A replan's place in the group's queue. A thread of its own does the replan, since it waits for other ranks: the
// progress thread has other groups to carry.
class ReplanTask final : public Task {
 public:
  // `deadline`: that of the operation behind it.
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
