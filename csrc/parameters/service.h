// SPDX-License-Identifier: Apache-2.0
// The parameter service, as one member of it sees it. A member is a worker, a server, or both. Servers hold the shards
// of one vector of float32; workers push updates and pull values.
//
// Every worker has a pair with every server. A worker that dies takes its pairs with it, and nothing else. If a server
// dies, the next living server takes over its shard. The worker that has the newest values sends them (adoption.cc).
// Other state of the rule, such as momentum, begins anew. Updates under way may be lost.
//
// Two threads do the work: one polls all pairs; on servers, a second one admits workers.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/interruptible_wait.h"
#include "parameters/client.h"
#include "parameters/request.h"
#include "parameters/server.h"
#include "parameters/session.h"
#include "parameters/setup.h"

namespace braid {

class ParameterService {
 public:
  // Blocks until the pairs of this member stand and, on a server, until all workers have come. kMismatch on all members
  // if settings differ. `give_up` ends the wait with kAborted.
  static Result<std::unique_ptr<ParameterService>> create(ServiceSetup setup, const GiveUp& give_up = {});
  ~ParameterService();  // close() without waiting
  ParameterService(const ParameterService&) = delete;
  ParameterService& operator=(const ParameterService&) = delete;

  size_t elements() const { return setup_.elements; }
  const std::vector<Extent>& extents() const { return extents_; }  // by shard, in order
  int state_vectors() const { return state_vectors_; }

  // The values of worker 0 become the servers'. On other workers the values are ignored.
  using Request = std::shared_ptr<ParameterRequest>;
  Request install(const float* values);
  // Vectors have elements() numbers. `result` may be null: nothing comes back. A `result` stays valid and unchanged
  // until a later request brings values, because a rescue may read it. With the elastic rule this holds for `update`.
  // `based_on`: the request whose values the update was computed with. Null: the last one that brought values and was
  // done before this call.
  Request push(const float* update, float* result, Table table, float scale, const ParameterRequest* based_on);
  Request pull(float* values);
  // `values` has elements() * (1 + state_vectors()) numbers: shard by shard, its values and then its state.
  Request snapshot(float* values);
  Request restore(const float* values, const std::vector<uint64_t>& steps);
  // Waits, and moves the request meanwhile. kTimeout if the deadline comes first; the request goes on.
  Waited wait(const ParameterRequest& request, Deadline deadline, const GiveUp& give_up);

  struct Stats {
    Server::Stats server;              // of this member's shards
    std::vector<int> workers;          // that this server has now
    std::vector<std::string> wires;    // by shard's first server
    std::vector<uint64_t> sent_bytes;  // to each server
    std::vector<uint64_t> received_bytes;
    std::vector<int> homes;   // by shard: its server's place in `servers`
    uint64_t lost_parts = 0;  // parts of updates that went to servers that died
    size_t worker_bytes = 0;  // of memory for codecs
  };
  Stats stats() const;
  // Of a server without a worker: gives its shards to other servers. It is done when stats().workers is empty. If there
  // is no other server, is_leaving() becomes false again.
  void leave();
  bool is_leaving() const;
  // What this worker's messages have lacked so far, of a shard; zeros without a codec.
  std::vector<float> residual(size_t shard) const { return residuals_.values(shard); }
  Status failure() const;  // why this worker can go on no more, or ok

  // Leaves. A server first waits, for `limit` at most, until all workers have left. Idempotent.
  void close(milliseconds limit, const GiveUp& give_up);

 private:
  // Finds another server for the shard of one that is lost, or takes it there from one that leaves.
  struct Rescue {
    int shard = 0;
    int from = -1;  // places in `servers`
    int to = -1;
    bool is_hand_over = false;  // `from` lives, and gives values and state
    bool is_forced = false;     // all servers leave: `to` must stay
    std::set<int> refused;      // places; of those that must stay, if is_forced
    ClientCall call;
    enum class State {
      kFinding,     // asks all whether they have it already
      kAsking,      // asks `to` to take over a lost shard
      kInstalling,  // brings values there
      kTaking,      // gets a snapshot from the server that leaves
      kRestoring,   // brings it to `to`
      kTelling,     // tells the former server
      kKeeping,     // tells it that it must stay
    } state = State::kFinding;
    bool has_asked = false;    // since ask_at
    int asked = -1;            // kFinding: the last place
    std::vector<float> taken;  // values and state
    uint64_t version = 0;      // of these
    uint64_t steps = 0;
    uint64_t moves = 0;
    Status why;  // the loss of the former server
    Clock::time_point ask_at;
    Deadline due = kNoDeadline;
  };

  // A thread in wait().
  struct Caller {
    explicit Caller(ParameterService& called) : service(called) {
      ++service.callers_;
      ++service.waits_;
    }
    ~Caller() { --service.callers_; }
    ParameterService& service;
  };

  ParameterService(ServiceSetup setup, std::shared_ptr<EngineImpl> engine, std::vector<Extent> extents);
  // beginning.cc
  Status begin(const GiveUp& give_up);
  Status reach_servers(const GiveUp& give_up);
  Status register_late(Store& store);
  Status reach(size_t place, Store& store, const GiveUp& give_up);
  // With relaxed consistency, for a server of this host.
  std::unique_ptr<Client> mapped(std::unique_ptr<Client> messages);
  Status await_workers(const GiveUp& give_up);
  void await_refused();
  void admit_workers();  // the second thread
  void admit_late(Store& store);
  Status admit(Store& store, int worker, milliseconds timeout);
  std::string pair_name(int server, int worker) const;
  Deadline call_deadline() const { return deadline_after(setup_.options.timeout); }

  void poll_until_stopped();  // the first thread
  // Ends all that this member does: the others may have gone on without it.
  void fence(milliseconds stood_still);
  bool poll_sessions();
  bool poll_clients();
  using Fill = std::function<void(size_t shard, ClientCall& call)>;
  Request start(CallKind kind, const float* newest, const Fill& fill);
  void start_call(size_t shard, ParameterRequest& request, const Status& failure);
  // Ends requests whose calls are over, and moves rescues. True if anything moved.
  bool tend();
  bool tend_locked(ParameterRequest& request);
  bool tend_lost_part(size_t shard, ParameterRequest& request);
  bool tend_moved_part(size_t shard, ParameterRequest& request);
  // Whether a call of this request may go to the shard's home. If not, calls of earlier requests must go first. Null: a
  // request that begins.
  bool may_start(size_t shard, const ParameterRequest* request) const;
  bool start_parked(ParameterRequest& request);
  bool is_lost(int place) const;

  // rescue.cc
  void begin_rescue(size_t shard, const Status& why, bool leaves);
  bool move_rescue(size_t shard);
  void call_for(Rescue& rescue, int place, CallKind kind, HandOver hand_over);
  void go_on(Rescue& rescue);
  void go_on_with_hand_over(Rescue& rescue);
  void find(Rescue& rescue);
  void choose(Rescue& rescue);
  void bring(Rescue& rescue);
  void ask_again(Rescue& rescue);
  void end_rescue(size_t shard, int home, uint64_t moves);
  // leaving.cc: servers that leave.
  bool say_farewells();
  bool is_needed(int place) const;
  bool is_elastic() const { return setup_.server.rule.kind == RuleKind::kElastic; }
  bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }

  const ServiceSetup setup_;
  const std::shared_ptr<EngineImpl> engine_;
  const std::vector<Extent> extents_;
  const int state_vectors_;
  const bool is_worker_;
  std::unique_ptr<Server> server_;  // null: this member holds no shards
  Residuals residuals_;
  std::vector<std::unique_ptr<Client>> clients_;  // by place in `servers`; fixed once has_clients_
  std::atomic<bool> has_clients_{false};
  // Atomic, because a server asks for them while others hold the lock below.
  std::deque<std::atomic<int>> homes_;  // by shard: place in `servers`
  std::deque<std::atomic<bool>> lost_;  // by place: this worker has lost the server

  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Session>> arrived_;  // sessions that the first thread does not have yet
  std::vector<uint64_t> versions_;               // by shard: of the values that came last
  std::vector<uint64_t> moves_;                  // by shard: how often it has moved, as this worker knows
  const float* newest_ = nullptr;                // the values that came last, for a rescue
  std::list<Request> open_;
  std::vector<std::unique_ptr<Rescue>> rescues_;  // by shard
  struct Farewell {
    ClientCall call;
    bool is_sent = false;
    Clock::time_point at;  // not before
  };
  std::map<int, Farewell> farewells_;  // by place: to servers that leave; not sent while calls are open
  uint64_t lost_parts_ = 0;
  Status failure_;
  Status admission_;  // why a worker of the beginning could not be admitted
  bool is_closed_ = false;

  std::list<std::unique_ptr<Session>> sessions_;  // of the first thread
  std::atomic<int> callers_{0};
  std::atomic<uint64_t> waits_{0};  // that have begun
  std::atomic<bool> stopping_{false};
  std::thread poller_;
  std::thread doorkeeper_;
};

}  // namespace braid
