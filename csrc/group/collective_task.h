// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "aggregator/aggregated_all_reduce.h"
#include "communicator/communicator.h"
#include "engine/progress.h"
#include "executor/board_execution.h"
#include "executor/execution.h"
#include "group/route.h"
#include "group/stall.h"
#include "group/task_context.h"

namespace braid {

// Describes an operation: "all_reduce #42 (sum, float32, 400 bytes, ring)". The result keeps no reference to the
// arguments.
Work::Describe description_of(const Operation& operation, size_t bytes, const Route& route, uint64_t sequence);

// One collective: over the group's boards, through its mailbox, or through aggregators. It begins with its first
// advance(), which comes when all collectives before it have ended.
class CollectiveTask final : public Task {
 public:
  CollectiveTask(TaskContext& group, uint64_t sequence, Operation operation, const Route& route,
                 Clock::time_point started, Deadline deadline);

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return asked_ ? answers_due_ : std::min(deadline_, stall_.due()); }
  bool fail(const Status& why) override;
  // Sets the time at which its turn came. Without this call, the first advance() reads the clock.
  void begin_at(Clock::time_point now) { begun_ = now; }
  // A prepared operation has posted the messages of this rank. Call it before the first advance().
  void set_posted() { has_posted_ = true; }
  std::string what() const { return description_of(operation_, bytes_, *route_, sequence_)(); }
  // Makes the work by which others watch the task. Call it before other threads can reach the task.
  void make_work();
  void set_work(std::shared_ptr<Work> work) { work_ = std::move(work); }
  const std::shared_ptr<Work>& work() const { return work_; }
  // The outcome of a task without a work, once it is done.
  const std::optional<Status>& outcome() const { return outcome_; }

 private:
  Status begin();
  // True if the operation must not begin yet: aggregators get whole inputs only.
  bool lacks_inputs() const;
  // Begins over the boards or through the mailbox, without aggregators.
  void begin_alone();
  Step advance_aggregated(AggregatedAllReduce& aggregated);
  bool begun() const { return !std::holds_alternative<std::monostate>(running_); }
  Step advance_on_boards(BoardExecution& execution, bool before_sleep);
  // After an advance over the boards that moved nothing: checks what the boards do not show.
  Status look_around(const BoardExecution& execution, bool had_lost);
  Step wait_or_give_up(bool moved);
  std::string waiting_for() const;
  // The facts for a notice.
  WaitView view();
  std::vector<Node> waiting_peers() const;
  // The status is passed by value, because the execution that may own it is destroyed here.
  Step finish(Status status, std::vector<Node> missing = {});
  void record(Clock::time_point now);
  Status timed_out(std::vector<Node>* missing) const;

  TaskContext& group_;
  const uint64_t sequence_;
  Operation operation_;  // its blocks are moved out when it begins without aggregators
  const size_t bytes_;
  const Route* route_;  // of the plan in force when its turn comes
  Signature signature_;
  std::vector<std::byte> token_;  // the bytes that a barrier sends
  std::shared_ptr<Work> work_;
  std::optional<Status> outcome_;
  const Clock::time_point started_;
  const Deadline deadline_;
  std::unique_ptr<AggregatedAllReduce> aggregated_;  // running, or failed; after a failure it still owns the input
  std::variant<std::monostate, AggregatedAllReduce*, Execution, BoardExecution> running_;
  bool has_posted_ = false;
  bool has_needed_ = false;                 // told the mailbox which peers it needs, over the boards
  unsigned idle_ = 0;                       // advances in a row that moved nothing
  std::optional<Clock::time_point> begun_;  // when its turn came
  Stall stall_;                             // its wait, from begun_
  bool asked_ = false;                      // after the deadline, asked which ranks have not come
  std::vector<Node> missing_;               // the ranks that had not come
  Deadline answers_due_;
};

}  // namespace braid
