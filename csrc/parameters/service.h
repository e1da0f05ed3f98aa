// SPDX-License-Identifier: Apache-2.0
// The parameter service, as one member of it sees it. A member is a worker, a server, or both. Servers hold the shards
// of one vector of float32; workers push updates and pull values.
//
// Every worker has a pair with every server. Its requests go to those that hold numbers. A worker that dies takes its
// pairs with it, and nothing else. If a server dies, the next living server takes over its shard. The worker that has
// the newest values sends them (adoption.cc). Other state of the rule, such as momentum, begins anew. Updates under way
// may be lost.
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
#include "parameters/copier.h"
#include "parameters/request.h"
#include "parameters/rescue.h"
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

  // Requests use the caller's memory until they are done. `values` of install(), a `result`, and with the elastic rule
  // an `update`, stay unchanged until a later request brings values, because a rescue may read them. `owner` keeps the
  // memory for as long as the service may use it. It goes on any thread. Null: the caller sees to that until the
  // service has ended.
  using Request = std::shared_ptr<ParameterRequest>;
  using Owner = std::shared_ptr<const void>;
  // The values of worker 0 become the servers'. On other workers the values are ignored.
  Request install(const float* values, Owner owner = {});
  // Vectors have elements() numbers. `result` may be null: nothing comes back.
  // `based_on`: the request whose values the update was computed with. Null: the last one that brought values and was
  // done before this call.
  // `round`: the version of the values that the round begins with for which this push is meant, on all shards
  // (Quorum::late_goes_on).
  Request push(const float* update, float* result, Table table, float scale, const ParameterRequest* based_on,
               std::optional<uint64_t> round = std::nullopt, Owner owner = {});
  Request pull(float* values, Owner owner = {});
  // No other worker waits for this one until its next push.
  Request rest();
  // Brings versions(), and no values.
  Request look();
  // `values` has elements() * (1 + state_vectors()) numbers: shard by shard, its values and then its state.
  Request snapshot(float* values, Owner owner = {});
  // Versions go on from the given ones, if those are higher.
  Request restore(const float* values, const std::vector<uint64_t>& steps,
                  const std::vector<uint64_t>& versions = {}, Owner owner = {});
  // Waits, and moves the request meanwhile. kTimeout if the deadline comes first; the request goes on.
  Waited wait(const ParameterRequest& request, Deadline deadline, const GiveUp& give_up);
  // Says who has not answered it, for an error.
  std::string unanswered(const ParameterRequest& request) const;

  struct Stats {
    Server::Stats server;              // of this member's shards
    std::vector<int> workers;          // that this server has now
    std::vector<std::string> wires;    // by shard's first server
    std::vector<uint64_t> sent_bytes;  // to each server
    std::vector<uint64_t> received_bytes;
    std::vector<int> homes;  // by shard: its server's place in `servers`
    // Parts of this worker's updates that were lost with servers that died. Never fewer than were lost, and more only
    // where nobody knows: a part under way counts, and older ones than the last kMostNoted of a shard are estimated.
    uint64_t lost_parts = 0;
    // Servers and workers that this member has lost: "the server of rank 4 on node7 (pid 4711) is lost: ...".
    std::vector<std::string> lost_members;
    size_t worker_bytes = 0;  // of memory for codecs, and for a shard that this worker carries
  };
  static constexpr size_t kMostNoted = 1024;
  Stats stats() const;
  // Of a server without a worker: gives its shards to other servers. It is done when stats().workers is empty. If there
  // is no other server, is_leaving() becomes false again.
  void leave();
  bool is_leaving() const;
  // What this worker's messages have lacked so far, of a shard; zeros without a codec.
  std::vector<float> residual(size_t shard) const { return residuals_.values(shard); }
  Status failure() const;  // why this worker can go on no more, or ok

  // Leaves. A server first waits, for `limit` at most, until all workers have left. `why`: an error because of which
  // this member goes; the others are told. Idempotent.
  void close(milliseconds limit, const GiveUp& give_up, const std::string& why = "");

 private:
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
  // reaching.cc
  Status reach_servers(const GiveUp& give_up);
  // Makes a pair with the server at this place, and a client of it.
  Status meet(int place, Store& store);
  // Says to a server that was met that this worker has come. From then on the server counts on it.
  Status join(int place, const GiveUp& give_up);
  // Whether this worker may go on without this server, which it has not reached.
  bool miss(int place, const Status& why);
  Options options_for(int place) const;
  // With relaxed consistency, for a server of this host.
  std::unique_ptr<Client> mapped(std::unique_ptr<Client> messages);
  // door.cc
  Status await_workers(const GiveUp& give_up);
  void await_refused();
  void keep_door();  // the second thread
  Status admit_first(Store& store);
  void follow_list(Store& store);
  // The next one of the list; kTimeout if nobody has come.
  Status read_entry(Store& store, const GiveUp& give_up);
  void admit_late(Store& store);
  Status admit(Store& store, int worker, milliseconds timeout);
  // backups.cc
  void register_backup(Store& store);
  void form_copies(Store& store, const std::string& text);
  Result<std::unique_ptr<Client>> reach_backup(Store& store, int place);
  // newcomer.cc: servers that come late. A server finds its place, and the workers that have seen it.
  static Status enlist(ServiceSetup& setup, const GiveUp& give_up);
  Status await_a_worker(const GiveUp& give_up);
  void admit_announced(Store& store);
  // A worker reaches the one at this place, and brings it shards.
  void reach_newcomer(int place, Store& store, const GiveUp& give_up);
  struct Newcomer;
  bool tend_newcomers();
  void bring_shard(int place, Newcomer& newcomer);
  void begin_share(size_t shard, int place, uint64_t workers);
  std::string pair_name(int server, int worker) const;
  // A member at the other end of a pair: "rank 4 (for ranks 4 to 7) on node7 (pid 4711)".
  std::string who_is(int member, Store& store, const Pair& pair) const;
  Deadline call_deadline() const { return deadline_after(setup_.options.timeout); }

  void poll_until_stopped();  // the first thread
  // Ends all that this member does: the others go on without it, or may do so.
  void fence(const std::string& why);
  bool poll_sessions();
  bool poll_clients();
  void note_lost(int place);
  using Fill = std::function<void(size_t shard, ClientCall& call)>;
  Request start(CallKind kind, const float* newest, Owner owner, const Fill& fill);
  void start_call(size_t shard, ParameterRequest& request, const Status& failure);
  // Ends requests whose calls are over, and moves rescues. True if anything moved.
  bool tend();
  bool tend_locked(ParameterRequest& request);
  void note_versions(ParameterRequest& request);
  bool tend_moved_part(size_t shard, ParameterRequest& request);
  // Requests leave shards without numbers out. Without any numbers, one shard is asked for all.
  bool is_asked(size_t shard) const { return extents_[shard].count > 0 || (elements() == 0 && shard == 0); }
  // Whether a call of this request may go to the shard's home. If not, calls of earlier requests must go first. Null: a
  // request that begins.
  bool may_start(size_t shard, const ParameterRequest* request) const;
  // Numbers a push, or learns from its answers which number it had.
  void count_push(ParameterRequest& request);
  void learn_clock(const ParameterRequest& request);
  // Looks for new homes of shards whose servers were lost, whether or not a call needs them now: a server takes such a
  // shard over once all its workers have asked it to (adoption.cc).
  bool rescue_lost_shards();
  bool start_parked(ParameterRequest& request);
  bool is_lost(int place) const;
  // How many servers this worker knows. A shard may be at one that it has yet to reach.
  size_t places() const { return places_.load(std::memory_order_acquire); }
  bool is_known(int place) const { return static_cast<size_t>(place) < places(); }
  std::string server_text_at(int place) const {
    const std::string& name = names_[static_cast<size_t>(place)];
    return name.empty() ? server_text(server_at(setup_, place)) : name;
  }

  // rescue.cc
  void begin_rescue(size_t shard, const Status& why, bool leaves);
  bool move_rescue(size_t shard);
  bool move_rescues();
  // This worker lacks the memory to carry the shard. Another one may have it.
  void postpone(size_t shard, const Status& why);
  Status why_none_took(const Rescue& rescue) const;
  bool carries_another(const Rescue& rescue) const;
  bool is_being_written(size_t shard) const;
  // The server at `to` does not take the shard.
  void note_refusal(Rescue& rescue);
  // Values of a shard that this worker has; null if it has none.
  struct Newest {
    const float* values = nullptr;
    uint64_t version = 0;
    uint64_t rounds = 0;    // Mode::kSync: how many are in the values
    bool is_mixed = false;  // parts are of a newer version, whose answer was arriving when the server was lost
    uint64_t quality() const { return values == nullptr ? kNoValues : is_mixed ? kMixedValues : kWholeValues; }
  };
  Newest newest_of(size_t shard) const;
  void call_for(Rescue& rescue, int place, CallKind kind, HandOver hand_over);
  void go_on(Rescue& rescue);
  void go_on_with_hand_over(Rescue& rescue);
  void find(Rescue& rescue);
  void choose(Rescue& rescue);
  void bring(Rescue& rescue);
  void ask_again(Rescue& rescue);
  void end_rescue(size_t shard, int home, uint64_t moves);
  // lost_parts.cc
  bool tend_lost_part(size_t shard, ParameterRequest& request);
  void repeat(size_t shard, ParameterRequest& request);
  // Notes the version that a push has made, to know after the server's death whether the update is lost.
  void note_push(size_t shard, ParameterRequest& request);
  // As end_rescue(), where the former server was lost.
  void end_loss(size_t shard, int home, const Answer& answer);
  // Of the updates so far, those up to this version are left. `moves`: since the shard has moved so often.
  void count_lost(size_t shard, uint64_t left, uint64_t moves);
  // leaving.cc: servers that leave.
  bool say_farewells();
  bool is_needed(int place) const;
  bool is_home(int place) const;
  bool attend_idle_servers();
  bool is_elastic() const { return setup_.server.rule.kind == RuleKind::kElastic; }
  bool is_stopping() const { return stopping_.load(std::memory_order_acquire); }

  const ServiceSetup setup_;
  const std::shared_ptr<EngineImpl> engine_;
  const std::vector<Extent> extents_;
  const int state_vectors_;
  const bool is_worker_;
  std::unique_ptr<Server> server_;  // null: this member holds no shards
  int place_ = -1;                  // of this server in the list
  int in_list_ = -1;                // of a late worker: its place in the list of those that come late
  std::unique_ptr<Copier> copier_;  // null: without replicas
  Residuals residuals_;
  // By place in the list of servers: `servers`, then those that have come late. Fixed up to places_, once has_clients_.
  std::vector<std::unique_ptr<Client>> clients_;
  std::atomic<size_t> places_;
  std::atomic<bool> has_clients_{false};
  std::atomic<bool> has_begun_{false};
  // Atomic, because stats() and the poll of clients look at them without the lock below.
  std::deque<std::atomic<int>> homes_;  // by shard: place in `servers`
  std::deque<std::atomic<bool>> lost_;  // by place: this worker has lost the server
  std::vector<std::string> names_;      // by place: of the servers that were reached

  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Session>> arrived_;  // sessions that the first thread does not have yet
  std::vector<uint64_t> versions_;               // by shard: of the values that came last
  std::vector<uint64_t> moves_;                  // by shard: how often it has moved, as this worker knows
  // How many updates this worker has pushed. Unknown, once it has rested or come late, until the first answer.
  uint64_t clock_ = 0;
  bool has_clock_ = true;
  bool is_resting_ = false;
  std::deque<ClientCall> rests_;  // by shard: says again that it rests, to the shard's next server
  // The values that came last, for a rescue, and whose memory they are in.
  struct Kept {
    const float* values = nullptr;
    Owner owner;
    std::vector<uint64_t> rounds;  // by shard: as Newest
    std::vector<bool> is_mixed;    // the same
  } kept_;
  std::list<Request> open_;
  std::vector<std::unique_ptr<Rescue>> rescues_;  // by shard
  struct Farewell {
    ClientCall call;
    bool is_sent = false;
    Clock::time_point at;  // not before
  };
  std::map<int, Farewell> farewells_;  // by place: to servers that leave; not sent while calls are open.
  std::deque<ClientCall> attends_;     // by place: to servers that hold nothing, which could leave unnoticed
  // What a server that has come late wants to have, as this worker asks it. The worker with the lowest number brings it
  // shards.
  struct Newcomer {
    ClientCall call;
    bool is_sent = false;
    bool has_its_part = false;
    Clock::time_point ask_at;
  };
  std::map<int, Newcomer> newcomers_;  // by place; none that has its part
  // Of one shard: which versions this worker's pushes have made.
  struct Pushed {
    std::deque<uint64_t> versions;  // the last kMostNoted ones
    uint64_t older = 0;             // how many there were before
    uint64_t newest_older = 0;      // their largest version
  };
  std::vector<Pushed> pushed_;  // by shard, without those that were lost
  std::vector<Losses> losses_;  // by shard, as this worker knows
  uint64_t lost_parts_ = 0;
  std::vector<std::string> lost_servers_;  // one line each
  Status failure_;
  Status admission_;  // why a worker of the beginning could not be admitted
  bool is_closed_ = false;

  std::list<std::unique_ptr<Session>> sessions_;  // of the first thread.
  // Of the second thread:
  int next_in_list_ = 0;  // in the list of those that come late.
  int list_places_;       // of servers, as far as the list has told.
  struct LateWorker {
    int worker = -1;
    int in_list = -1;  // its place there
    Deadline until;
  };
  std::list<LateWorker> late_;  // those that stand in the list, and may be on their way to this server
  std::set<int> unannounced_;   // of a newcomer: workers that may still say that they have seen it
  std::atomic<int> callers_{0};
  std::atomic<uint64_t> waits_{0};  // that have begun
  std::atomic<bool> stopping_{false};
  std::thread poller_;
  std::thread doorkeeper_;
};

}  // namespace braid
