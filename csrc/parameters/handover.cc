// SPDX-License-Identifier: Apache-2.0
// How a server that leaves gives its shards away. It refuses all calls for them. A worker that is refused asks the next
// server to adopt the shard. That server chooses one worker, which takes a snapshot here and restores it there. Then all
// repeat the refused calls. So nothing is lost, and nothing is applied twice.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "parameters/server.h"

namespace braid {
namespace {

// How long a chosen worker may take to restore a snapshot. Until then this server does not take the shard back.
constexpr milliseconds kRestoreDue{10'000};

}  // namespace

void Server::leave() {
  const std::lock_guard lock(mutex_);
  is_leaving_ = true;
  for (Entry& entry : entries_) entry.shard.give_up(true);
  settle_locked();
}

bool Server::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return is_leaving_;
}

bool Server::has_moved(const Job& job, const Entry& entry) const {
  if (job.is_applied || job.call.hand_over == HandOver::kKeep) return false;
  const bool is_round_open = options_.has_rounds() && entry.summed > 0;  // it ends here
  switch (job.call.kind) {
    case CallKind::kAdopt:
      // Who leaves takes over nothing, unless its owner died: then it may be the last one. A worker that was told to
      // bring the shard here may be on its way, and all must find it in one place.
      return is_leaving_ && job.call.hand_over == HandOver::kYes && !entry.is_here() && entry.adoption.chosen < 0;
    case CallKind::kSnapshot:
    case CallKind::kRestore:
      if (job.call.hand_over != HandOver::kNo) return false;
      [[fallthrough]];
    case CallKind::kPush:
    case CallKind::kPushPull:
    case CallKind::kPull: return entry.is_given || (is_leaving_ && entry.shard.is_installed() && !is_round_open);
    default: return false;
  }
}

// A worker takes the shard from here to another server.
void Server::give(Job& job, Entry& entry) {
  if (!is_leaving_ && !entry.is_given) {
    job.status = {Code::kAborted, "this server stays, and keeps its shards"};
    return;
  }
  // Workers may have asked different servers. Only one gets the shard, or there would be two of it.
  if (entry.is_given && entry.given_to >= 0 && entry.given_to != job.worker) {
    job.answer.has_moved = 1;
    job.status = {Code::kAborted, worker_text(entry.given_to) + " takes this shard to another server"};
    return;
  }
  entry.is_given = true;
  entry.given_to = job.worker;
  entry.given_at = Clock::now();
  std::vector<Turn> turns(kMostTurns);
  size_t rows = 1;
  for (const auto& [worker, progress] : entry.progress) {
    if (rows < kMostTurns) turns[rows++] = {worker, 0, progress.clock};
  }
  turns[0] = {entry.last, 0, rows - 1};
  float* const after = job.result + entry.shard.count() * static_cast<size_t>(1 + state_vectors_);
  std::memcpy(after, turns.data(), kMostTurns * sizeof(Turn));
}

// A worker brings the shard from another server.
Status Server::take(const Job& job, Entry& entry) {
  if (Status bad = entry.shard.restore(job.update, job.call.steps, job.call.base); !bad.ok()) return bad;
  entry.is_given = false;
  entry.given_to = -1;
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
  return {};
}

// A worker found no other server. A shard that was given away and arrived nowhere belongs to this one again.
Verdict Server::keep_locked(Entry& entry) {
  if (entry.is_given && Clock::now() < entry.given_at + kRestoreDue) return Verdict::kWait;
  entry.is_given = false;
  entry.given_to = -1;
  if (is_leaving_) log(LogLevel::kWarning, "a parameter server stays: no other one is left");
  is_leaving_ = false;
  for (Entry& other : entries_) other.shard.give_up(other.is_given);
  return Verdict::kDone;
}

}  // namespace braid
