// SPDX-License-Identifier: Apache-2.0
// The shards of one server, and the order in which it answers its workers. It knows no wire: a Session brings the calls
// of a worker in another process. A worker of this process calls submit() itself.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "parameters/buffers.h"
#include "parameters/call.h"
#include "parameters/memory_budget.h"
#include "parameters/memory_needs.h"
#include "parameters/server_options.h"
#include "parameters/shard.h"
#include "transport/doorbell.h"

namespace braid {

// A part of the vector.
struct Extent {
  size_t begin = 0;
  size_t count = 0;
};

// A call at a server. Its maker keeps it, and its memory, until it is done or the maker has cancelled it.
struct Job {
  int worker = -1;
  Call call;
  const Table* table = nullptr;
  // Of a worker of this process: its own memory. Of a Session: `buffer`, which the server takes back as soon as the
  // update is applied, and gives again for the reply.
  const float* update = nullptr;
  float* result = nullptr;
  Floats buffer;
  Floats whole;  // the same, for a shard with the rule's state
  bool is_remote = false;

  Status status;
  Answer answer;
  const float* reply = nullptr;  // the values, if the call asks for them: `result`, or the shard itself
  uint64_t beginning = 0;        // Shard::beginning() of the reply
  std::atomic<bool> done{false};

  bool is_applied = false;  // for the server only
  bool is_late = false;     // the same: Quorum::late_goes_on
};

class Server {
 public:
  // Shard i has extents[i]. A server holds the shards that are installed in it. `bell` is rung when a job is done.
  Server(const ServerOptions& options, std::vector<Extent> extents, DoorbellWord& bell);

  // A worker has come. kMismatch if its settings differ; the text names both. kSystem if there is no memory for one
  // worker more.
  Status admit(int worker, const std::string& settings);
  // The worker has left or died. It no longer counts for those who wait, and its own jobs fail. `loss`: for stats().
  void dismiss(int worker, bool died, const std::string& loss = "");
  // The worker lives, and goes on without this server, which it has taken for lost. So this server knows no longer who
  // is there, and takes over no shard.
  void note_given_up(int worker);
  // All workers but `own`, which lives in this process, are gone, and the last of them has given this server up.
  bool is_given_up(int own) const;
  std::vector<int> workers() const;
  // The worker has the answer of admit().
  void has_heard(int worker);
  // How many workers with numbers below this one have heard whether they are admitted.
  int arrivals(int below) const;
  // Set once, before the first worker: pushes wait until workers 0 .. workers-1 have come. Else those that come first
  // would end a round of kSync alone.
  void await_first(int workers) { awaited_ = workers; }
  // kQuorum: ends the rounds whose grace period is over. Returns the time at which the next grace period is over.
  Deadline end_late_rounds();
  // The first refusal of admit(), or ok.
  Status refusal() const;

  // Does the job, or queues it until it can be done. It fails if its worker is not admitted.
  void submit(Job& job);
  // When this returns, the job is not touched any more.
  void cancel(Job& job);
  // Fails all jobs, now and later.
  void close(const Status& why);
  // Gives all shards away: calls for them are refused as moved, and workers take them to another server. A call that is
  // accepted already is finished, or nothing of it is done. If a worker says that there is no other server,
  // is_leaving() is false again.
  void leave();
  bool is_leaving() const;
  // Set once, before the first worker: this server has come late, and holds so many numbers at most.
  void come_late(uint64_t most) { takes_ = most; }

  bool holds_shards() const;

  // A worker needs this server no more, because it leaves. An error if it stays; kWait while it still holds a shard.
  // After the first one it takes no shard.
  Status farewell(int worker, Verdict& verdict);

  // replica.cc: copies of this server's shards at another one, its backup.
  struct Copy {
    int shard = -1;
    uint64_t version = 0;
    uint64_t steps = 0;
    uint64_t moves = 0;
    std::vector<float> numbers;  // as the body of kReplica
  };
  // From now on the backup has none of this server's shards. Without a backup nothing waits for copies.
  void set_backup(bool exists);
  // Takes a copy of a shard whose copy at the backup is too old. False if there is none.
  bool take_copy(Copy& copy);
  // The backup has it.
  void note_copy(const Copy& copy);
  // The backup holds this shard itself: it has taken it over. This server gives it up. `left`: the version from which
  // the backup has gone on.
  void give_way(int shard, int place, uint64_t moves, uint64_t left);
  // When take_copy() should be called again at the latest.
  Deadline copy_due() const;

  // A buffer for the body of a call: for the numbers of the largest shard, and behind them, from message_at() on, for
  // an encoded update. Null while all are in use, or while workers whose turn comes earlier may need one. Then the job
  // waits in a queue until acquire() has given it one, or cancel().
  Floats acquire(const Job& job);
  // The same for a shard with the rule's state, with what a hand-over adds.
  Floats acquire_whole(const Job& job);
  // The job has no memory of this server any more.
  void release(Job& job);

  const std::vector<Extent>& extents() const { return extents_; }
  int state_vectors() const { return state_vectors_; }
  size_t message_at() const { return braid::message_at(most_count_); }
  CallLimits limits() const { return {most_count_, state_vectors_, options_.coding.push}; }
  const BodyCodecs& coding() const { return options_.coding; }
  // Memory that the sessions keep, for stats().
  void count_bytes(ptrdiff_t more) { session_bytes_.fetch_add(more, std::memory_order_relaxed); }

  struct Stats {
    std::map<int, uint64_t> versions;  // by shard
    std::vector<uint64_t> staleness;   // histogram; the last entry counts all that are staler
    uint64_t updates = 0;
    uint64_t calls = 0;              // of workers, for shards; not those in mapped memory
    uint64_t died = 0;               // workers
    std::vector<std::string> lost;   // one line each: who, and why
    size_t bytes = 0;                // of memory
    std::map<int, uint64_t> copied;  // by shard: the version that the backup has
  };
  Stats stats() const;

 private:
  struct Progress {  // of one worker in one shard
    uint64_t clock = 0;
    bool has_contributed = false;  // kSync, kQuorum: to the present round
    bool rests = false;            // until its next push.
    bool has_pushed = false;       // kQuorum: ever
    bool has_clock = true;         // false: unknown until its next push, as after the loss of the shard's server
    // The number of its last push that came, as the worker counts. 0: unknown, or another mode than kSync.
    uint64_t number = 0;
  };
  struct Adoption {
    struct Offer {
      uint64_t values = kNoValues;
      uint64_t moves = 0;  // that the worker knows, with this one
      uint64_t version = 0;
      // After a loss versions count anew from an earlier one, so moves come before them.
      auto operator<=>(const Offer&) const = default;
    };
    std::map<int, Offer> offers;  // by worker
    Clock::time_point began_at;
    int chosen = -1;
    Clock::time_point chosen_at;
    // Of all that have offered.
    uint64_t most_moves() const;
  };
  struct Entry {
    Entry(Shard made) : shard(std::move(made)) {}
    Shard shard;
    std::map<int, Progress> progress;  // of living workers
    int last = -1;                     // kRoundRobin: who pushed last
    Floats sum;                        // kSync, kQuorum: of the updates of the present round
    int summed = 0;
    int came = 0;                    // kQuorum: how many workers have brought these.
    Deadline ends_at = kNoDeadline;  // kQuorum: the end of the grace period
    Table table;                     // of the round
    uint64_t table_base = 0;         // of the push that it came with
    // Rounds of kSync that are over, since the values began.
    uint64_t rounds = 0;
    Adoption adoption;
    uint64_t moves = 0;  // of the shard, when it came here
    // Up to this move, this server lacks the memory to take the shard over. It stays so: all workers must go to the
    // same server.
    std::optional<uint64_t> refused_moves;
    bool is_reserved = false;  // there is memory for it, and it is about to come
    Losses losses;
    bool is_given = false;     // a worker has taken the shard to another server, or is about to
    int given_to = -1;         // the worker that takes it; -1 as well if that one is gone
    uint64_t given_moves = 0;  // the last move that was begun here
    int gone_to = -1;          // the place of its new server
    // A worker has brought it, but its former server has not told anyone. If that worker dies, another one takes the
    // shard from there once more, and this copy is void.
    bool is_dormant = false;
    bool is_here() const { return shard.is_installed() && !is_given && !is_dormant; }
    // At the backup: what the owner has sent last; empty if it has sent nothing.
    Copy copy;
    // At the owner: what the backup has.
    bool has_backup = false;
    uint64_t copied = 0;  // version
    Clock::time_point copied_at;
  };

  void settle_locked();
  // True if the job is done.
  bool advance_locked(Job& job);
  bool advance_push(Job& job, Entry& entry);
  bool advance_round(Job& job, Entry& entry);
  bool counts_already(const Job& job, const Entry& entry) const;
  // In mode kSync, notes the number of a push. True if it is meant for a round after the present one.
  bool is_for_later(const Job& job, Entry& entry);
  // The present round does not end before the worker has contributed to it.
  static bool is_awaited(const Progress& progress, const Entry& entry) {
    return !progress.has_contributed && !progress.rests && progress.number <= entry.rounds + 1;
  }
  void add_to_round(Job& job, Entry& entry);
  // Applies the round's sum if all living workers have contributed.
  void end_round_if_due(Entry& entry);
  void end_round(Entry& entry);
  Verdict adopt_locked(Job& job, Entry& entry);
  // Takes from the budget what the server needs for so many workers, and for a shard, or a copy of one, that is to come.
  // False if that is not there.
  bool reach_memory(size_t workers, const Entry* shard = nullptr, const Entry* copy = nullptr);
  bool reserve(const Job& job, Entry& entry);
  bool has_memory_for(const Entry& entry) { return reach_memory(workers_.size(), &entry); }
  void refuse_for_memory(Job& job, const Entry& entry) const;
  // handover.cc: whether the call is refused, because the shard goes, or has gone, to another server.
  bool has_moved(const Job& job, const Entry& entry) const;
  void refuse(Job& job, const Entry& entry) const;
  void freeze(Entry& entry);
  bool may_take(const Job& job, const Entry& entry) const;
  void stay_locked();
  void give(Job& job, Entry& entry);
  void take(Job& job, Entry& entry);
  void note_move(Job& job, Entry& entry);
  void share(Job& job, Entry& entry);
  void tell_offer(Job& job);
  bool tell_leave(Job& job) const;
  void tell_map(Job& job, const Entry& entry) const;
  // replica.cc
  void keep_copy(Job& job, Entry& entry);
  bool waits_for_copy(const Entry& entry) const;
  bool is_copy_due(const Entry& entry, Clock::time_point now) const;
  static bool has_copy(const Entry& entry, const Job& job);
  void wake_copy(Job& job, Entry& entry, const Adoption::Offer& newest);
  // Which updates are left, of those before the job's move.
  static uint64_t left_of(const Job& job, const Entry& entry);
  void add_state_of_copy(const Job& job, Entry& entry);
  std::vector<Turn> turns_of(const Entry& entry) const;
  static void take_turns(Entry& entry, const float* rows);
  // Of a shard whose server was lost: nobody waits for a worker before its next push.
  static void forget_clocks(Entry& entry);
  // Copies the values into the job's memory. False while it has none and all buffers are in use.
  bool read(Job& job, Entry& entry);
  // The same for a shard with the rule's state.
  bool find_whole(Job& job);
  void fail(Job& job, Status why);
  void forget_place(const Job& job);  // in the queues for buffers
  // How many buffers must be free before this job takes one (Buffers::Needs).
  int buffers_for(const Job& job) const;
  Buffers& wholes_of(const Job& job);
  // How many workers may need a buffer before this one.
  int turns_before(const Job& job) const;
  // Of the workers that do not rest, and whose clock is known; 0 if there is none.
  static uint64_t least_clock(const Entry& entry);
  static Progress progress_of_newcomer(const Entry& entry);
  static uint64_t most_clock(const Entry& entry);
  static bool is_turn_of(int worker, const Entry& entry);
  void rest(int worker, Entry& entry);
  void wake_all_if_all_rest(Entry& entry) const;
  // The worker wants to push again. False while it has to rest. It counts as far as the one that is furthest ahead.
  bool wake(int worker, Entry& entry) const;
  void count_push(Job& job, Entry& entry) const;

  const ServerOptions options_;
  const std::vector<Extent> extents_;
  const int state_vectors_;
  size_t most_count_ = 0;
  DoorbellWord& bell_;

  mutable std::mutex mutex_;
  std::set<int> workers_;  // those that live
  std::set<int> sources_;  // servers whose backup this one is: their numbers (source_number())
  bool has_backup_ = false;
  std::set<int> given_up_by_;  // workers
  int left_last_ = -1;         // a worker
  std::set<int> have_heard_;
  std::set<int> have_called_;  // of those that live: others may still be on their way to other servers
  bool is_leaving_ = false;
  std::optional<uint64_t> takes_;  // come_late()
  bool has_its_part_ = false;      // the same
  bool is_sealed_ = false;         // a worker has said farewell: this server can take no shard, and cannot stay
  int awaited_ = 0;                // workers with lower numbers have not all come yet; 0 once they have
  std::vector<Entry> entries_;
  std::list<Job*> waiting_;
  Buffers buffers_;
  Buffers wholes_;    // for shards with the rule's state.
  Buffers restores_;  // the same, of a restore that is no hand-over
  MemoryShare memory_;
  bool must_look_again_ = false;  // a job lets others go on, and is not done
  std::atomic<ptrdiff_t> session_bytes_{0};
  uint64_t updates_ = 0;
  uint64_t calls_ = 0;
  uint64_t died_ = 0;
  std::vector<std::string> lost_;
  Status refusal_;
  Status closed_;
};

}  // namespace braid
