// SPDX-License-Identifier: Apache-2.0
// The things a group has under way: a collective, a point-to-point message, and the queue of collectives.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "communicator/aggregated_all_reduce.h"
#include "communicator/group.h"
#include "engine/progress.h"
#include "executor/shared_execution.h"

namespace braid {

// Says what an operation is, as in "all_reduce #42 (sum, float32, 400 bytes, ring)". The result refers to none of these.
Work::Describe description_of(const Operation& operation, size_t bytes, const Route& route, uint64_t sequence);

// One collective, over the group's boards or through its mailbox. It begins with its first advance(), which is when
// its turn has come.
class CollectiveTask final : public Task {
 public:
  CollectiveTask(Group& group, uint64_t sequence, Operation operation, const Route& route,
                 Clock::time_point started, Deadline deadline);

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return asked_ ? answers_due_ : std::min(deadline_, stall_.due()); }
  bool fail(const Status& why) override;
  // Its turn comes at this moment; else it asks the clock when its turn has come.
  void begin_at(Clock::time_point now) { begun_ = now; }
  // A prepared operation has posted what this rank sends. Before its turn comes.
  void set_posted() { has_posted_ = true; }
  std::string what() const { return description_of(operation_, bytes_, *route_, sequence_)(); }
  // For those who watch it from outside. Before others can reach the task; without one, nobody can watch.
  void make_work();
  void set_work(std::shared_ptr<Work> work) { work_ = std::move(work); }
  const std::shared_ptr<Work>& work() const { return work_; }
  // Of a task that nobody watches, once it is done.
  const std::optional<Status>& outcome() const { return outcome_; }

 private:
  Status begin();
  void begin_alone();
  Step advance_aggregated(AggregatedAllReduce& aggregated);
  bool begun() const { return !std::holds_alternative<std::monostate>(running_); }
  Step advance_shared(SharedExecution& execution, bool before_sleep);
  // After an advance over the boards that moved nothing: what the boards do not tell.
  Status look_around(const SharedExecution& execution, bool had_lost);
  Step wait_or_give_up(bool moved);
  std::string waiting_for() const;
  // For a notice.
  WaitView view();
  std::vector<Node> waiting_peers() const;
  // By value: the execution, which may hold the status, ends here.
  Step finish(Status status, std::vector<Node> missing = {});
  void record(Clock::time_point now);
  Status timed_out(std::vector<Node>* missing) const;

  Group& group_;
  const uint64_t sequence_;
  Operation operation_;  // until it begins
  const size_t bytes_;
  const Route* route_;  // of the plan that holds when its turn has come
  Intent intent_;
  std::vector<std::byte> token_;  // what a barrier passes around
  std::shared_ptr<Work> work_;
  std::optional<Status> outcome_;
  const Clock::time_point started_;
  const Deadline deadline_;
  std::unique_ptr<AggregatedAllReduce> aggregated_;  // gone through, or tried in vain: then it still has the input
  std::variant<std::monostate, AggregatedAllReduce*, Execution, SharedExecution> running_;
  bool has_posted_ = false;
  bool has_needed_ = false;                 // somebody, over the boards
  unsigned idle_ = 0;                       // advances in a row that moved nothing
  std::optional<Clock::time_point> begun_;  // its turn came
  Stall stall_;                             // since then
  bool asked_ = false;                      // after the deadline: which ranks are not here?
  std::vector<Node> missing_;               // when it has failed for that
  Deadline answers_due_;
};

// One message to or from another rank.
class MessageTask final : public Task {
 public:
  MessageTask(std::shared_ptr<Group> group, const PointToPoint& message, Deadline deadline,
              std::shared_ptr<Work> work)
      : group_(std::move(group)), message_(message), deadline_(deadline), work_(std::move(work)) {
    stall_.begin(work_->started_at(), group_->options().stall_notice);
  }

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return std::min(deadline_, stall_.due()); }
  bool fail(const Status& why) override;
  Request* request() { return &request_; }
  // Whether the mailbox has the request; until then it waits for a message to be matched with. Before advance().
  void set_matched(bool matched) { matched_ = matched; }

 private:
  std::optional<Status> outcome();  // none yet
  WaitView view() const;

  const std::shared_ptr<Group> group_;
  const PointToPoint message_;
  const Deadline deadline_;
  const std::shared_ptr<Work> work_;
  Stall stall_;
  Request request_;
  bool matched_ = false;
};

// The group's queue, as the progress thread sees it: moves on the head.
class QueueTask final : public Task {
 public:
  explicit QueueTask(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return deadline_; }
  bool fail(const Status& why) override;

 private:
  const std::shared_ptr<Group> group_;
  Deadline deadline_ = kNoDeadline;
};

}  // namespace braid
