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

// A round that is open begins anew elsewhere: its updates are refused, too.
void Server::freeze(Entry& entry) {
  entry.shard.give_up(true);
  if (entry.summed == 0) return;
  for (Job* job : waiting_) {
    const auto index = static_cast<size_t>(job->call.shard);
    if (index >= entries_.size() || &entries_[index] != &entry) continue;
    const auto progress = entry.progress.find(job->worker);
    if (progress != entry.progress.end() && progress->second.has_contributed) job->is_applied = false;
  }
  for (auto& [worker, progress] : entry.progress) progress.has_contributed = false;
  updates_ -= static_cast<uint64_t>(entry.summed);
  entry.summed = 0;
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
  }
  job.status = {Code::kAborted, "this server leaves, and its shard goes to another one"};
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
  std::vector<Turn> turns(kMostTurns);
  size_t rows = 1;
  for (const auto& [worker, progress] : entry.progress) {
    if (rows < kMostTurns) turns[rows++] = {worker, 0, progress.clock};
  }
  turns[0] = {entry.last, 0, rows - 1};
  float* const after = job.result + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  std::memcpy(after, turns.data(), kMostTurns * sizeof(Turn));
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
// passes on.
bool Server::may_take(const Job& job, const Entry& entry) const {
  if (is_sealed_) return false;
  return !is_leaving_ || job.call.hand_over == HandOver::kKeep || entry.is_dormant;
}

// A worker brings the shard from another server.
void Server::take(Job& job, Entry& entry) {
  if (entry.is_here() && entry.moves >= job.call.moves) return;
  if (!may_take(job, entry)) return refuse(job, entry);
  if (job.call.hand_over == HandOver::kKeep) stay_locked();
  job.status = entry.shard.restore(job.update, job.call.steps, job.call.base);
  if (!job.status.ok()) return;
  if (!is_leaving_) entry.shard.give_up(false);
  entry.is_given = false;
  entry.given_to = entry.gone_to = -1;
  entry.is_dormant = true;
  entry.moves = job.call.moves;
  entry.adoption = {};
  std::vector<Turn> turns(kMostTurns);
  const float* const after = job.update + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  std::memcpy(static_cast<void*>(turns.data()), after, kMostTurns * sizeof(Turn));
  entry.last = turns[0].worker;
  const size_t rows = std::min<uint64_t>(turns[0].clock, kMostTurns - 1);
  for (size_t row = 1; row <= rows; ++row) {
    const auto known = entry.progress.find(turns[row].worker);
    if (known != entry.progress.end()) known->second.clock = turns[row].clock;
  }
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
