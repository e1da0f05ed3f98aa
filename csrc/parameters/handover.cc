// SPDX-License-Identifier: Apache-2.0
// How a server that leaves gives its shards away. It alone decides where a shard is, until the shard has arrived:
//
// 1. The shard is frozen. The server refuses all calls for it, also those that wait. Nothing of them is done.
// 2. The first worker that asks gets a snapshot (kSnapshot). The others ask again.
// 3. That worker brings it to another server (kRestore), which does not leave. There the shard is dormant.
// 4. It tells the former server (kMoved), which tells all others. Their calls wake the shard up.
//
// If the worker dies before step 4, the next one that asks gets the snapshot. If all servers leave, one of them stays:
// the living one with the lowest place in the list. Workers bring it shards with HandOver::kKeep.
//
// A server that comes late gets shards in the same way (newcomer.cc). One of its workers asks the owner, which stays,
// to freeze one (HandOver::kShare), and goes on with step 2.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "parameters/server.h"

namespace braid {

void Server::leave() {
  const std::lock_guard lock(mutex_);
  is_leaving_ = true;
  for (Entry& entry : entries_) freeze(entry);
  settle_locked();
}

bool Server::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return is_leaving_;
}

bool Server::holds_shards() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.is_here(); });
}

// A round that is open begins anew elsewhere: its updates are refused, too.
void Server::freeze(Entry& entry) {
  entry.shard.give_up(true);
  if (entry.summed == 0) return;
  if (options_.quorum.late_goes_on) return end_round(entry);  // those that were late will not bring it again
  for (Job* job : waiting_) {
    const auto index = static_cast<size_t>(job->call.shard);
    if (index >= entries_.size() || &entries_[index] != &entry) continue;
    const auto progress = entry.progress.find(job->worker);
    if (progress != entry.progress.end() && progress->second.has_contributed) job->is_applied = false;
  }
  for (auto& [worker, progress] : entry.progress) progress.has_contributed = false;
  updates_ -= static_cast<uint64_t>(entry.summed);
  entry.summed = entry.came = 0;
  entry.ends_at = kNoDeadline;
}

bool Server::has_moved(const Job& job, const Entry& entry) const {
  if (job.is_applied || lane_of(job.call) == 0) return false;
  if (job.call.kind == CallKind::kInstall || job.call.kind == CallKind::kMap) return false;
  return entry.is_given || (is_leaving_ && entry.shard.is_installed());
}

void Server::refuse(Job& job, const Entry& entry) const {
  job.answer.has_moved = 1;
  if (entry.is_given && entry.gone_to >= 0) {
    job.answer.moved_to = static_cast<uint64_t>(entry.gone_to) + 1;
    job.answer.moves = entry.given_moves;
    job.answer.shard_version = entry.losses.least_since(job.call.moves);
  }
  job.status = {Code::kAborted, "its shard goes to another server"};
}

// A worker asks a server that stays to freeze a shard. It asks again for the snapshot: workers of this host may just
// add to mapped memory.
void Server::share(Job& job, Entry& entry) {
  if (entry.is_given && entry.gone_to >= 0) return refuse(job, entry);
  if (entry.is_given) {
    job.answer.verdict = Verdict::kWait;
    return;
  }
  if (!entry.is_here() || is_leaving_ || workers_.size() > job.call.base) {
    job.status = {Code::kAborted, "this server gives no shard now"};
    return;
  }
  freeze(entry);
  entry.is_given = true;
  entry.given_to = job.worker;
  job.answer.verdict = Verdict::kWait;
}

void Server::tell_offer(Job& job) {
  if (!takes_ || is_leaving_ || is_sealed_) {
    job.status = {Code::kAborted, "this server takes no shards"};
    return;
  }
  has_its_part_ |= job.call.place == 1;
  job.answer.steps = *takes_;
  job.answer.shard_version = workers_.size();
  if (has_its_part_) return;
  job.answer.verdict = job.worker == *workers_.begin() ? Verdict::kSend : Verdict::kWait;
}

// True, and refused, once this server leaves.
bool Server::tell_leave(Job& job) const {
  if (!is_leaving_) return false;
  job.answer.has_moved = 1;
  job.status = {Code::kAborted, "this server leaves"};
  return true;
}

// A worker asks for the shard, to take it to another server.
void Server::give(Job& job, Entry& entry) {
  if (entry.is_given && entry.gone_to >= 0) return refuse(job, entry);
  if (!is_leaving_ && !entry.is_given) {
    job.status = {Code::kAborted, "this server stays, and keeps its shards"};
    return;
  }
  if (entry.is_given && entry.given_to >= 0 && entry.given_to != job.worker) {
    job.answer.verdict = Verdict::kWait;
    return;
  }
  entry.is_given = true;
  entry.given_to = job.worker;
  entry.given_moves = std::max(entry.given_moves, entry.moves) + 1;
  job.answer.moves = entry.given_moves;
  const std::vector<Turn> turns = turns_of(entry);
  float* const after = job.result + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  std::memcpy(after, turns.data(), kMostTurns * sizeof(Turn));
  entry.losses.write(after + kTurnFloats);
}

// The worker has brought the shard elsewhere.
void Server::note_move(Job& job, Entry& entry) {
  if (!entry.is_given || entry.given_to != job.worker || entry.given_moves != job.call.moves) {
    job.status = {Code::kAborted, "another worker takes this shard elsewhere"};
    return;
  }
  entry.gone_to = static_cast<int>(job.call.place);
  entry.given_to = -1;
}

// A server that leaves takes no shard, unless all leave and it must stay; or unless it has a copy already, which it
// passes on. One that was given up takes none: another server may have it by now.
bool Server::may_take(const Job& job, const Entry& entry) const {
  if (is_sealed_ || !given_up_by_.empty()) return false;
  return !is_leaving_ || job.call.hand_over == HandOver::kKeep || entry.is_dormant;
}

// A worker brings the shard from another server.
void Server::take(Job& job, Entry& entry) {
  if (entry.is_here() && entry.moves >= job.call.moves) return;
  if (!may_take(job, entry)) return refuse(job, entry);
  if (!has_memory_for(entry)) return refuse_for_memory(job, entry);
  if (job.call.hand_over == HandOver::kKeep) stay_locked();
  job.status = entry.shard.restore(job.update, job.call.steps, job.call.base);
  if (!job.status.ok()) return;
  if (!is_leaving_) entry.shard.give_up(false);
  entry.is_given = false;
  entry.given_to = entry.gone_to = -1;
  entry.is_dormant = true;
  entry.is_reserved = false;
  entry.moves = job.call.moves;
  entry.adoption = {};
  entry.copy = {};
  const float* const turns = job.update + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  take_turns(entry, turns);
  entry.losses = Losses::read(turns + kTurnFloats);
}

// All servers leave, and this one was chosen to stay. What was given away stays away.
void Server::stay_locked() {
  if (!is_leaving_) return;
  log(LogLevel::kWarning, "a parameter server stays: no other one is left");
  is_leaving_ = false;
  for (Entry& entry : entries_) entry.shard.give_up(entry.is_given);
}

Status Server::farewell(int worker, Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  if (!is_leaving_) return {Code::kAborted, "this server stays, and " + worker_text(worker) + " may need it"};
  const bool holds_any = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.shard.is_installed() && !(entry.is_given && entry.gone_to >= 0);
  });
  if (holds_any) {
    verdict = Verdict::kWait;
  } else {
    is_sealed_ = true;
  }
  return {};
}

}  // namespace braid
