// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "communicator/aggregated_all_reduce.h"
#include "communicator/aggregator_discovery.h"
#include "communicator/communicator.h"
#include "communicator/matching.h"
#include "communicator/prepared.h"
#include "communicator/stall.h"
#include "communicator/statistics.h"
#include "engine/engine_impl.h"
#include "executor/board_execution.h"
#include "executor/execution.h"
#include "links/link_watch.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/store_until.h"
#include "transport/vigil.h"
#include "tuner/tuner.h"

namespace braid {

class CollectiveTask;
class ControlChannel;

// Describes a point-to-point message.
struct PointToPoint {
  bool sends = false;
  Node peer = kAnyNode;
  uint32_t tag = 0;
  size_t bytes = 0;
};

// What the route of an operation depends on.
struct RouteKey {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Node root = 0;
  uint32_t codec = 0;
  int64_t bytes = 0;

  bool operator==(const RouteKey&) const = default;
};

// How operations of some kind and size are carried.
struct Route {
  SchedulePtr schedule;
  BoardPlan board;         // used if possible: over the boards; if not, through the mailbox
  size_t chunk_bytes = 0;  // chunk size through the mailbox
  int plan = 0;            // the group's plan() when the route was made
  Statistics::Row* counters = nullptr;
};

// The communicator. Collectives run one at a time, in the order started. The progress thread carries the head of
// the queue. The caller itself may carry an operation that it starts in an idle group. The thread that moves the
// current collective is its carrier.
//
// Group lies in five files: launch.cc starts and queues collectives; choice.cc has the tuner and routes; group.cc has
// life, messages and state; replan.cc changes plans; aggregator_group.cc adds up with aggregators.
class Group final : public Communicator, public std::enable_shared_from_this<Group> {
 public:
  // `nodes`: the ranks, and after them options.aggregators.
  Group(std::shared_ptr<EngineImpl> engine, Node rank, int nodes, std::string name, const Options& options);
  ~Group() override;

  // Calls `give_up` only while it runs.
  Status rendezvous(Store& store, const GiveUp& give_up);

  Node rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  const std::string& name() const override { return name_; }
  bool is_on_several_hosts() const override { return is_on_several_hosts_; }
  Result<std::shared_ptr<Work>> start(Operation operation, bool inline_if_idle) override;
  Result<std::shared_ptr<Work>> run(Operation operation) override;
  Result<std::shared_ptr<Work>> send(Node to, uint32_t tag, ConstBytes bytes, milliseconds timeout) override;
  Result<std::shared_ptr<Work>> recv(Node from, uint32_t tag, Bytes bytes, milliseconds timeout) override;
  void set_timeout(milliseconds timeout) override;
  uint64_t sequence() const override;
  void abort(const std::string& reason) override;
  void shutdown(const GiveUp& give_up = {}) override;
  Status failure() const override;
  std::vector<OperationStats> stats() const override { return statistics_.snapshot(); }
  Waits waits() const override { return stalls_.waits(); }
  Result<Explanation> explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes,
                              const std::optional<Codec>& codec = std::nullopt) override;
  std::string topology_text() const override { return to_text(tuner()->topology()); }
  std::vector<std::string> describe_wires() const override { return wires_.descriptions; }

  // For tasks.
  Mailbox& mailbox() { return mailbox_; }
  EngineImpl& engine() { return *engine_; }
  const Options& options() const { return options_; }
  const std::vector<int>& hosts() const { return wires_.hosts; }  // the host number of each node
  Statistics& statistics() { return statistics_; }
  Stalls& stalls() { return stalls_; }
  // "node7 (pid 4711)"; empty if it is not known.
  std::string place_of(Node node) const;
  // Null unless all ranks share memory.
  shm::Board* board() { return wires_.board.get(); }
  SharedWorkspace& workspace() { return workspace_; }  // for the running collective only
  // True if the doorbell has rung since the last call, and on the first call. Then the caller must poll the
  // mailbox. For the running collective only.
  bool has_rung();
  // Shows the other ranks that this rank is now in collective `sequence`: on the board if there is one, and through
  // the mailbox if `by_mailbox`.
  void announce(uint64_t sequence, const Intent& intent, bool by_mailbox);
  // kMismatch if a rank of this host has another operation than this rank as collective `sequence`, or as one of
  // the `before` collectives before it.
  Status disagreement(uint64_t sequence, uint64_t before = 0) const;
  // The nodes not known to have begun collective `sequence`. First call mailbox().ask() and wait for answers.
  std::vector<Node> missing(uint64_t sequence);
  // Both are read under one lock: a caller that hands its operation over puts it before the head.
  struct Turn {
    std::shared_ptr<Task> head;  // null if the queue is empty; then the progress thread must drop its task
    bool must_wait = false;      // true while a caller carries its operation
  };
  Turn turn_of_queue();
  void pop_head();
  // The number of the plan. It grows when the ranks plan anew, on all ranks between the same two collectives.
  int plan() const { return plan_.load(std::memory_order_acquire); }
  // The route of an operation. It lives as long as the group.
  Result<const Route*> route_for(const Operation& operation);
  // An all_reduce through the aggregators, if that is faster; else null. All ranks decide the same.
  std::unique_ptr<AggregatedAllReduce> aggregated_for(const Operation& operation, uint64_t sequence);
  // Ends the aggregator group. If `parts`, it ends without a failure. If not, the ranks voted that it failed, and
  // `why` is the reason that this rank saw.
  void dismiss_aggregator_group(const Status& why, bool parts = false);
  Statistics::Row& aggregated_counters() { return *aggregated_counters_; }
  // Checks whether the plans still suit the network, and whether aggregators wait. All ranks call it between the
  // same two collectives. Blocks. The caller must fail the group if this fails. `first`: the group is just
  // forming.
  Status replan(bool first, Deadline deadline);
  milliseconds timeout() const;
  // True if the receive is matched with a message. If it never will be, `lost` says why.
  bool match(uint32_t tag, const Request* request, Status* lost);
  // Drops a receive that may still wait to be matched.
  void forget(uint32_t tag, const Request* request);
  // A message has ended. Call it after the callbacks of its work.
  void message_ended();

 private:
  // The links between the hosts: stated, remembered, measured now, or assumed.
  Result<Topology> learn_links(bool again, Deadline deadline);
  Status make_tuner(bool again, Deadline deadline);
  void limit_credit(const Topology& topology);
  void pace_peers(const Topology* topology);
  std::shared_ptr<Tuner> tuner() const;
  std::shared_ptr<Group> aggregator_group() const;
  // Counts the operation. True if a replan is due before it.
  bool is_replan_due_locked(const Operation& operation);
  // Makes the progress thread carry the queue. After an error no thread carries it.
  Status carry_queue_locked();
  // Ends all queued operations of a failed group, on the progress thread or, if it cannot run, in this thread.
  void drain_queue(const Status& why);
  // On the first rank: decides what all ranks do. `seen`: the rates that each rank's NIC has passed lately.
  std::string decide(bool first, const std::vector<SeenRates>& seen);
  std::string decide_on_servers(bool first);
  Status measure_again(Deadline deadline);
  SeenRates seen_rates();
  Status form_aggregator_group(int aggregators, const std::string& name);
  void shut_down_retired();
  // The predicted time of an all_reduce in this group.
  std::optional<double> predicted_s(DType dtype, ReduceOp op, int64_t bytes);
  // True if the all_reduce is faster in `group`, the aggregator group.
  bool is_faster_with(Group& group, DType dtype, ReduceOp op, int64_t bytes);
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
  // Ok unless the group has failed or was shut down.
  Status open_locked() const;
  // hand_over() gives the message to the mailbox. It returns false if a receive is not matched yet.
  Result<std::shared_ptr<Work>> start_message(const PointToPoint& message, milliseconds timeout,
                                              const std::function<bool(Request*, Work*)>& hand_over);
  Deadline deadline_locked(Clock::time_point now, milliseconds timeout) const;

  const std::shared_ptr<EngineImpl> engine_;
  const Node rank_;
  const int nodes_;
  const int ranks_;  // the nodes without aggregators
  const std::string name_;
  const Options options_;  // without give_up, which is for the rendezvous only
  GiveUp give_up_;         // set only while the group forms
  Wires wires_;
  Mailbox mailbox_;  // after the wires: closed and destroyed before them
  const std::shared_ptr<Vigil> vigil_;
  Statistics statistics_;
  Stalls stalls_;
  bool is_on_several_hosts_ = false;
  bool may_replan_ = false;               // several hosts, and their links may change or aggregators may join
  LinkWatch link_watch_;                  // on the first rank
  const std::shared_ptr<Store> servers_;  // null: no aggregators may join
  AggregatorDiscovery discovery_;         // on the first rank
  Statistics::Row* aggregated_counters_ = nullptr;
  std::atomic<int> plan_{0};
  SharedWorkspace workspace_;
  uint32_t polled_at_ = 0;  // rings of the doorbell before the last poll; used by has_rung() only
  bool has_polled_ = false;

  mutable std::mutex mutex_;
  std::shared_ptr<Tuner> tuner_;
  std::shared_ptr<Group> aggregator_group_;      // null without aggregators
  std::vector<std::shared_ptr<Group>> retired_;  // aggregator groups that have ended, to be shut down
  int aggregator_count_ = 0;
  size_t aggregator_operations_ = 0;
  bool replan_due_ = false;
  size_t since_replan_ = 0;  // large all_reduces since the last replan
  size_t bytes_since_replan_ = 0;
  std::deque<std::shared_ptr<Task>> queue_;
  bool inline_running_ = false;    // a caller carries its operation, which is not in the queue
  bool queue_is_carried_ = false;  // the progress thread has a task for the queue
  uint64_t sequence_ = 0;
  std::map<std::tuple<const VerifiedSchedule*, int64_t, uint32_t>, Route> routes_;  // by schedule, chunk and codec
  struct {
    RouteKey key;
    const Route* route = nullptr;
  } last_route_;
  PreparedOperations prepared_;
  Matching matching_;
  std::map<std::tuple<bool, Node, uint32_t>, uint64_t> message_counts_;  // by (sends, peer, tag), for their names
  size_t open_messages_ = 0;
  std::condition_variable ended_;  // notified when an operation ends
  milliseconds timeout_;
  bool shut_down_ = false;
};

}  // namespace braid
