// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/aggregator_group.h"
#include "communicator/communicator.h"
#include "communicator/member.h"
#include "communicator/statistics.h"
#include "group/choice.h"
#include "group/messages.h"
#include "group/peers.h"
#include "group/prepared.h"
#include "group/queue.h"
#include "group/replan.h"
#include "group/stall.h"
#include "group/task_context.h"
#include "rendezvous/rendezvous.h"
#include "transport/mailbox.h"
#include "transport/vigil.h"

namespace braid {

class CollectiveTask;

// The communicator. Collectives run one at a time, in the order started. The progress thread carries the head of
// the queue. The caller itself may carry an operation that it starts in an idle group. The thread that moves the
// current collective is its carrier.
//
// launch.cc starts and queues collectives; group.cc has the rest. What a group knows and decides lies in its parts:
// messages_, choice_, aggregators_, replanner_, peers_, stalls_, statistics_.
//
// Locks: mutex_ guards the members below it, and the counts of replanner_. A thread that holds mutex_ takes no lock
// but those of the mailbox and of the progress thread. A part that threads share has a lock of its own. No thread
// holds it while it calls the group, or another part than statistics_.
class Group final : public MeasuredGroup, private Queue, public std::enable_shared_from_this<Group> {
 public:
  // Forms a group as Communicator::create() does. `nodes`: the ranks, and after them options.aggregators.
  static Result<std::shared_ptr<Group>> form(std::shared_ptr<EngineImpl> engine, Store& store, Node rank,
                                             int nodes, const std::string& name, const Options& options);
  // For form().
  explicit Group(Member member);
  ~Group() override;

  Node rank() const override { return member_.rank; }
  int ranks() const override { return member_.ranks; }
  const std::string& name() const override { return member_.name; }
  bool is_on_several_hosts() const override { return choice_.is_on_several_hosts(); }
  Result<std::shared_ptr<Work>> start(Operation operation, bool inline_if_idle) override;
  Result<std::shared_ptr<Work>> run(Operation operation) override;
  Result<std::shared_ptr<Work>> send(Node to, uint32_t tag, ConstBytes bytes, milliseconds timeout) override {
    return messages_.send(shared_from_this(), to, tag, bytes, timeout);
  }
  Result<std::shared_ptr<Work>> recv(Node from, uint32_t tag, Bytes bytes, milliseconds timeout) override {
    return messages_.recv(shared_from_this(), from, tag, bytes, timeout);
  }
  void set_timeout(milliseconds timeout) override { timeout_.set(timeout); }
  uint64_t sequence() const override;
  void abort(const std::string& reason) override;
  void shutdown(const GiveUp& give_up = {}) override;
  Status failure() const override { return mailbox_.failure(); }
  std::vector<OperationStats> stats() const override { return statistics_.snapshot(); }
  Waits waits() const override { return stalls_.waits(); }
  Result<Explanation> explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes,
                              const std::optional<Codec>& codec = std::nullopt) override;
  std::string topology_text() const override { return to_text(choice_.tuner()->topology()); }
  std::vector<std::string> describe_wires() const override { return wires_.descriptions; }
  std::optional<double> predicted_s(DType dtype, ReduceOp op, int64_t bytes) override {
    return choice_.predicted_s(dtype, op, bytes);
  }
  SeenRates seen_rates() override { return replanner_.seen_rates(); }

 private:
  Status rendezvous(Store& store, const GiveUp& give_up);
  AggregatorGroup::Home home_of_aggregators();
  // Starts a task. Carries it in this thread if `inline_if_idle` and nothing is queued. `watched`: the caller
  // needs its Work. An exception fails the group once the operation is counted: then other ranks would wait for
  // this one.
  Result<std::shared_ptr<CollectiveTask>> launch(Operation operation, bool inline_if_idle, bool watched);
  // The same, but throws. Sets *is_counted before it changes counters that all ranks must agree on.
  Result<std::shared_ptr<CollectiveTask>> launch_unguarded(Operation operation, bool inline_if_idle, bool watched,
                                                           bool* is_counted);
  // Carries a task in this thread, for `limit` at most; then queues it. REQUIRES: the caller has set
  // inline_running_.
  void carry_inline(const std::shared_ptr<CollectiveTask>& task, Clock::time_point now, milliseconds limit);
  void inline_ended_locked();
  // The prepared form of an operation, if it can be run now; else null.
  PreparedOperation* prepared_locked(const Operation& operation);
  // Runs a prepared operation in this thread. Takes over the lock, which is held, and releases it. Returns a Work if
  // `watched`, else null once it is done.
  Result<std::shared_ptr<Work>> run_prepared(PreparedOperation& prepared, Operation operation, bool watched,
                                             std::unique_lock<std::mutex> lock);
  Result<std::shared_ptr<Work>> carry_prepared(PreparedOperation& prepared, Operation operation, bool watched,
                                               uint64_t sequence);
  // Makes the progress thread carry the queue. After an error no thread carries it.
  Status carry_queue_locked();
  // Ends all queued operations of a failed group, on the progress thread or, if it cannot run, in this thread.
  void drain_queue(const Status& why);
  Turn turn() override;
  void pop_head() override;
  void fail(const Status& why) override { mailbox_.fail_here(why); }

  const Member member_;
  Wires wires_;
  Mailbox mailbox_;  // after the wires: closed and destroyed before them
  const std::shared_ptr<Vigil> vigil_;
  Timeout timeout_;
  Statistics statistics_;
  Peers peers_;
  Stalls stalls_;
  AlgorithmChoice choice_;
  AggregatorGroup aggregators_;
  Replanner replanner_;
  Messages messages_;
  TaskContext context_;

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Task>> queue_;
  bool inline_running_ = false;    // a caller carries its operation, which is not in the queue
  bool queue_is_carried_ = false;  // the progress thread has a task for the queue
  uint64_t sequence_ = 0;
  PreparedOperations prepared_;
  std::condition_variable ended_;  // notified when a collective ends
  bool shut_down_ = false;
};

}  // namespace braid
