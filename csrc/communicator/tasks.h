// SPDX-License-Identifier: Apache-2.0
// The things a group has under way: a collective, a point-to-point message, and the queue of collectives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "communicator/group.h"
#include "communicator/progress.h"

namespace braid {

// One collective. Reaches the mailbox with its first advance(), which is when its turn has come.
class CollectiveTask final : public Task {
 public:
  CollectiveTask(Group& group, uint64_t sequence, Operation operation,
                 std::shared_ptr<const VerifiedSchedule> schedule, Deadline deadline);

  Step advance() override;
  Deadline deadline() const override { return asked_ ? answers_due_ : deadline_; }
  const std::shared_ptr<Work>& work() const { return work_; }

 private:
  void begin();
  Step finish(Status status);  // by value: the execution, which may hold it, ends here
  Status timed_out() const;

  Group& group_;
  const uint64_t sequence_;
  Operation operation_;
  const std::shared_ptr<const VerifiedSchedule> schedule_;
  std::vector<std::byte> token_;  // what a barrier passes around
  const std::shared_ptr<Work> work_;
  const Deadline deadline_;
  std::optional<Execution> execution_;
  Clock::time_point begun_;
  bool asked_ = false;  // after the deadline: which ranks are not here?
  Deadline answers_due_;
};

// One message to or from another rank.
class MessageTask final : public Task {
 public:
  MessageTask(std::shared_ptr<Group> group, Node peer, Deadline deadline, std::shared_ptr<Work> work)
      : group_(std::move(group)), peer_(peer), deadline_(deadline), work_(std::move(work)) {}

  Step advance() override;
  Deadline deadline() const override { return deadline_; }
  Request* request() { return &request_; }

 private:
  const std::shared_ptr<Group> group_;
  const Node peer_;
  const Deadline deadline_;
  const std::shared_ptr<Work> work_;
  Request request_;
};

// The group's queue, as the progress thread sees it: moves on the head.
class QueueTask final : public Task {
 public:
  explicit QueueTask(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  Step advance() override;
  Deadline deadline() const override { return deadline_; }

 private:
  const std::shared_ptr<Group> group_;
  Deadline deadline_ = kNoDeadline;
};

}  // namespace braid
