// SPDX-License-Identifier: Apache-2.0
// A second copy of each shard. The owner sends values, the rule's state, and who has pushed how often, to its backup:
// the next living server of the list. It sends them anew after kCopyEvery updates, or after kCopyAfter. If the copy
// lags by kMostLag updates, further ones wait. So the copy is never older than that.
//
// If the owner dies, the backup becomes the owner. If a worker has newer values than the copy, they are used, with the
// state of the copy: no worker sees an older version than it has seen. An owner that still sends copies when its backup
// has taken over is told so, and gives the shard up.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "parameters/server.h"

namespace braid {
namespace {

constexpr uint64_t kCopyEvery = 8;
constexpr uint64_t kMostLag = 2 * kCopyEvery;
constexpr milliseconds kCopyAfter{50};

}  // namespace

// ---- The owner

void Server::set_backup(bool exists) {
  const std::lock_guard lock(mutex_);
  has_backup_ = exists;
  for (Entry& entry : entries_) entry.has_backup = false;
  settle_locked();
}

bool Server::is_copy_due(const Entry& entry, Clock::time_point now) const {
  if (!entry.is_here() || is_leaving_) return false;
  if (!entry.has_backup) return true;
  const uint64_t version = entry.shard.version();
  if (version >= entry.copied + kCopyEvery) return true;
  return version != entry.copied && now >= entry.copied_at + kCopyAfter;
}

// A shard that has no copy yet does not wait: its first copy is due at once.
bool Server::waits_for_copy(const Entry& entry) const {
  return has_backup_ && entry.has_backup && entry.shard.version() >= entry.copied + kMostLag;
}

bool Server::take_copy(Copy& copy) {
  const std::lock_guard lock(mutex_);
  if (!has_backup_ || !closed_.ok()) return false;
  const auto now = Clock::now();
  const Entry* due = nullptr;
  for (const Entry& entry : entries_) {
    if (!is_copy_due(entry, now)) continue;
    if (due == nullptr || !entry.has_backup || entry.copied_at < due->copied_at) due = &entry;
    if (!entry.has_backup) break;
  }
  if (due == nullptr) return false;
  const size_t count = due->shard.count() * static_cast<size_t>(1 + state_vectors_);
  const size_t turns_end = count + kTurnFloats;
  copy.shard = static_cast<int>(due - entries_.data());
  copy.version = due->shard.version();
  copy.steps = due->shard.steps();
  copy.moves = due->moves;
  copy.numbers.resize(turns_end + Losses::kFloats);
  due->shard.snapshot(copy.numbers.data());
  const std::vector<Turn> turns = turns_of(*due);
  std::memcpy(copy.numbers.data() + count, turns.data(), kMostTurns * sizeof(Turn));
  due->losses.write(copy.numbers.data() + turns_end);
  return true;
}

void Server::note_copy(const Copy& copy) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(copy.shard)];
  if (!has_backup_ || entry.moves != copy.moves) return;
  entry.has_backup = true;
  entry.copied = copy.version;
  entry.copied_at = Clock::now();
  settle_locked();
}

Deadline Server::copy_due() const {
  const std::lock_guard lock(mutex_);
  Deadline due = kNoDeadline;
  if (!has_backup_ || is_leaving_) return due;
  for (const Entry& entry : entries_) {
    if (!entry.is_here() || (entry.has_backup && entry.shard.version() == entry.copied)) continue;
    due = std::min(due, entry.copied_at + kCopyAfter);
  }
  return due;
}

void Server::give_way(int shard, int place, uint64_t moves, uint64_t left) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(shard)];
  if (!entry.is_here()) return;
  freeze(entry);
  entry.is_given = true;
  entry.given_to = -1;
  entry.gone_to = place;
  entry.given_moves = std::max(moves, entry.moves + 1);
  entry.losses.add(entry.given_moves, left);
  log(LogLevel::kWarning, "a parameter server gives shard " + std::to_string(shard) +
                              " up: another one has taken it over meanwhile, and updates since then are lost");
  settle_locked();
}

// ---- The backup

void Server::keep_copy(Job& job, Entry& entry) {
  job.answer.moves = entry.moves;
  if (entry.is_here()) {
    job.answer.is_owner = 1;
    job.answer.steps = entry.moves > job.call.moves ? entry.losses.least_since(job.call.moves) : 0;
    job.status = {Code::kAborted, "this server has taken over the shard"};
    return;
  }
  if (is_leaving_ || is_sealed_) {
    job.answer.has_moved = 1;
    job.status = {Code::kAborted, "this server leaves, and keeps no copies"};
    return;
  }
  if (entry.copy.numbers.empty() && !reach_memory(workers_.size(), nullptr, &entry)) {
    return refuse_for_memory(job, entry);
  }
  Copy& copy = entry.copy;
  const size_t count = snapshot_floats(job.call, state_vectors_);
  copy.numbers.assign(job.update, job.update + count);
  copy.shard = static_cast<int>(job.call.shard);
  copy.version = job.call.base;
  copy.steps = job.call.steps;
  copy.moves = job.call.moves;
}

// Whether there is a copy, and of the owner that was lost, not of an earlier one. The job's call counts one move more.
bool Server::has_copy(const Entry& entry, const Job& job) {
  return !entry.copy.numbers.empty() && entry.copy.moves + 1 >= job.call.moves;
}

// The backup becomes the owner. `newest`: a version that a worker has.
void Server::wake_copy(Job& job, Entry& entry, const Adoption::Offer& newest) {
  const Copy copy = std::move(entry.copy);
  entry.copy = {};
  const Status bad = entry.shard.restore(copy.numbers.data(), copy.steps, std::max(copy.version, newest.version));
  if (!bad.ok()) {
    job.status = bad;
    return;
  }
  const float* const turns = copy.numbers.data() + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  Turn first;
  std::memcpy(static_cast<void*>(&first), turns, sizeof first);
  entry.last = first.worker;
  entry.rounds = first.flags;
  forget_clocks(entry);
  entry.is_given = entry.is_dormant = entry.is_reserved = false;
  entry.given_to = entry.gone_to = -1;
  entry.moves = std::max(entry.moves, entry.adoption.most_moves());
  entry.losses = Losses::read(turns + kTurnFloats);
  entry.losses.add(entry.moves, copy.version);
  entry.adoption = {};
  log(LogLevel::kWarning, "a parameter server took over shard " + std::to_string(job.call.shard) + " at version " +
                              std::to_string(entry.shard.version()) + " from its copy, with the rule's state");
}

// A worker had newer values than the copy.
void Server::add_state_of_copy(const Job& job, Entry& entry) {
  const Copy& copy = entry.copy;
  const uint64_t behind = job.call.base - std::min(copy.version, job.call.base);
  const float* const state = copy.numbers.data() + entry.shard.count();
  entry.shard.set_state(state, copy.steps + behind);
  log(LogLevel::kWarning, "a parameter server took over shard " + std::to_string(job.call.shard) + " at version " +
                              std::to_string(job.call.base) + " from " + worker_text(job.worker) +
                              ", with the rule's state of " + std::to_string(behind) + " updates before");
}

// ---- Who has pushed how often

std::vector<Turn> Server::turns_of(const Entry& entry) const {
  std::vector<Turn> turns(kMostTurns);
  size_t rows = 1;
  for (const auto& [worker, progress] : entry.progress) {
    if (rows < kMostTurns)
      turns[rows++] = {worker, (progress.rests ? Turn::kRests : 0) | (progress.has_clock ? 0 : Turn::kHasNoClock),
                       progress.clock};
  }
  turns[0] = {entry.last, static_cast<uint32_t>(entry.rounds), rows - 1};
  return turns;
}

void Server::take_turns(Entry& entry, const float* rows) {
  std::vector<Turn> turns(kMostTurns);
  std::memcpy(static_cast<void*>(turns.data()), rows, kMostTurns * sizeof(Turn));
  entry.last = turns[0].worker;
  entry.rounds = turns[0].flags;
  // The former server may not have known a worker that has come late.
  for (auto& [worker, progress] : entry.progress) progress.has_clock = false;
  const size_t count = std::min<uint64_t>(turns[0].clock, kMostTurns - 1);
  for (size_t row = 1; row <= count; ++row) {
    const auto known = entry.progress.find(turns[row].worker);
    if (known == entry.progress.end()) continue;
    known->second.clock = turns[row].clock;
    known->second.rests = (turns[row].flags & Turn::kRests) != 0;
    known->second.has_pushed = turns[row].clock > 0;
    known->second.has_clock = (turns[row].flags & Turn::kHasNoClock) == 0;
  }
}

// Who rests says so again, and who pushes names its number. Both may have changed since a copy was made.
void Server::forget_clocks(Entry& entry) {
  for (auto& [worker, progress] : entry.progress) {
    progress = {};
    progress.has_clock = false;
  }
}

}  // namespace braid
