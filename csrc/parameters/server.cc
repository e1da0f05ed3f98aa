// SPDX-License-Identifier: Apache-2.0
#include "parameters/server.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace braid {
namespace {

constexpr const char* kQuorumText = "quorum:";

Status not_here(int worker) { return {Code::kAborted, worker_text(worker) + " has left, or has never joined"}; }

}  // namespace

Result<Consistency> consistency_from_text(const std::string& text) {
  if (text == "atomic") return Consistency::kAtomic;
  if (text == "relaxed") return Consistency::kRelaxed;
  return Status(Code::kInvalidArgument, "consistency is '" + text + "', expected 'atomic' or 'relaxed'");
}

Result<Mode> mode_from_text(const std::string& text) {
  if (text == "async") return Mode::kAsync;
  if (text == "round_robin") return Mode::kRoundRobin;
  if (text == "ssp") return Mode::kSsp;
  if (text == "sync") return Mode::kSync;
  if (text.starts_with(kQuorumText)) return Mode::kQuorum;
  return Status(Code::kInvalidArgument, "mode is '" + text +
                                            "', expected 'async', 'round_robin', 'ssp', 'sync' or "
                                            "'quorum:at_least=N,grace_ms=N'");
}

Result<Quorum> quorum_from_text(const std::string& text) {
  Quorum quorum;
  int grace_ms = 0;
  int used = 0;
  const int found =
      std::sscanf(text.c_str(), "quorum:at_least=%d,grace_ms=%d%n", &quorum.at_least, &grace_ms, &used);
  if (found == 2 && static_cast<size_t>(used) == text.size() && quorum.at_least >= 1 && grace_ms >= 0) {
    quorum.grace = milliseconds(grace_ms);
    return quorum;
  }
  return Status(Code::kInvalidArgument,
                "mode is '" + text + "', expected 'quorum:at_least=N,grace_ms=N' with at least 1 worker");
}

Server::Server(const ServerOptions& options, std::vector<Extent> extents, DoorbellWord& bell)
    : options_(options),
      extents_(std::move(extents)),
      state_vectors_(braid::state_vectors(options.rule)),
      bell_(bell) {
  for (const Extent& extent : extents_) {
    entries_.emplace_back(Shard(extent.begin, extent.count, options_.shard_rule(), options_.is_relaxed()));
    most_count_ = std::max(most_count_, extent.count);
  }
  message_at_ = (most_count_ + 15) / 16 * 16;
  buffer_count_ = most_count_;
  if (options_.coding.push) {
    buffer_count_ =
        message_at_ + (body_bytes(options_.coding.push, most_count_) + sizeof(float) - 1) / sizeof(float);
  }
}

// ---- Workers

Status Server::admit(int worker, const std::string& settings) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  if (settings != options_.settings) {
    Status differs(Code::kMismatch, worker_text(worker) + " has other settings: \"" + settings + "\", not \"" +
                                        options_.settings + "\"");
    if (refusal_.ok()) refusal_ = differs;
    return differs;
  }
  workers_.insert(worker);
  for (Entry& entry : entries_) entry.progress[worker] = {least_clock(entry), false};
  return {};
}

void Server::has_heard(int worker) {
  const std::lock_guard lock(mutex_);
  have_heard_.insert(worker);
  const auto here = std::distance(have_heard_.begin(), have_heard_.lower_bound(awaited_));
  if (awaited_ == 0 || here < awaited_) return;
  awaited_ = 0;
  settle_locked();
}

void Server::dismiss(int worker, bool died) {
  const std::lock_guard lock(mutex_);
  if (workers_.erase(worker) == 0) return;
  if (died) ++died_;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Job& job = **at;
    const bool goes = job.worker == worker;
    at = goes ? waiting_.erase(at) : std::next(at);
    if (goes) fail(job, not_here(worker));
  }
  for (Entry& entry : entries_) {
    entry.progress.erase(worker);
    entry.adoption.offers.erase(worker);
    if (entry.given_to == worker) entry.given_to = -1;
    entry.shard.forget(worker);
    end_round_if_due(entry);
  }
  settle_locked();
}

std::vector<int> Server::workers() const {
  const std::lock_guard lock(mutex_);
  return {workers_.begin(), workers_.end()};
}

int Server::arrivals(int below) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::distance(have_heard_.begin(), have_heard_.lower_bound(below)));
}

Status Server::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

// ---- Jobs

void Server::submit(Job& job) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return fail(job, closed_);
  if (!workers_.contains(job.worker)) return fail(job, not_here(job.worker));
  waiting_.push_back(&job);
  settle_locked();
}

void Server::cancel(Job& job) {
  const std::lock_guard lock(mutex_);
  waiting_.remove(&job);
}

void Server::close(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = why;
  for (const Entry& entry : entries_) {
    if (entry.shard.mapped() != nullptr) entry.shard.mapped()->give_up();
  }
  for (Job* job : std::exchange(waiting_, {})) fail(*job, closed_);
}

// A job that is applied or done may let others go on, so look again until nothing moves.
void Server::settle_locked() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      Job& job = **at;
      const bool was_applied = job.is_applied;
      if (!advance_locked(job)) {
        moved |= job.is_applied != was_applied;
        ++at;
        continue;
      }
      at = waiting_.erase(at);
      moved = true;
      if (!job.status.ok()) {
        job.answer.verdict = Verdict::kFailed;
        job.answer.code = job.status.code();
      }
      job.done.store(true, std::memory_order_release);  // from here on its maker may destroy it
      ring(bell_);
    }
  }
}

void Server::fail(Job& job, Status why) {
  job.answer.verdict = Verdict::kFailed;
  job.answer.code = why.code();
  job.status = std::move(why);
  job.done.store(true, std::memory_order_release);
  ring(bell_);
}

// ---- Calls

bool Server::advance_locked(Job& job) {
  const auto index = static_cast<size_t>(job.call.shard);
  if (index >= entries_.size() || job.call.count != entries_[index].shard.count()) {
    job.status = {Code::kMismatch, name_of(job.call.kind) + " names shard " + std::to_string(job.call.shard) +
                                       " of " + std::to_string(job.call.count) +
                                       " numbers, which is not a shard here"};
    return true;
  }
  Entry& entry = entries_[index];
  Shard& shard = entry.shard;
  if (entry.is_dormant && lane_of(job.call) > 0 && job.call.kind != CallKind::kMap) {
    if (job.call.moves < entry.moves) return false;
    entry.is_dormant = false;  // its former server has told this worker
  }
  if (has_moved(job, entry)) {
    refuse(job, entry);
    return true;
  }
  switch (job.call.kind) {
    case CallKind::kInstall:
      if (!entry.is_here()) {
        job.status = shard.install(job.update, job.call.base);
        if (!job.status.ok()) return true;
        entry.is_given = entry.is_dormant = false;
        entry.given_to = entry.gone_to = -1;
        entry.moves = std::max(entry.moves, job.call.moves);
        if (!entry.adoption.offers.empty()) {
          log(LogLevel::kWarning, "a parameter server took over shard " + std::to_string(job.call.shard) +
                                      " at version " + std::to_string(job.call.base) + " from " +
                                      worker_text(job.worker) + "; the state of the update rule begins anew");
        }
        entry.adoption = {};
      }
      job.answer.moves = entry.moves;
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kAdopt:
      job.answer.verdict = adopt_locked(job, entry);
      job.answer.moves = entry.moves;
      return true;
    case CallKind::kFind:
      job.answer.verdict = entry.is_here() ? Verdict::kDone : Verdict::kWait;
      job.answer.moves = entry.moves;
      return true;
    case CallKind::kMoved: note_move(job, entry); return true;
    case CallKind::kRestore:
      if (job.call.hand_over == HandOver::kNo) {
        job.status = shard.restore(job.update, job.call.steps, shard.version() + 1);
      } else {
        take(job, entry);
      }
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kSnapshot:
      if (!shard.is_installed()) return false;
      if (job.call.hand_over != HandOver::kNo) give(job, entry);
      if (!job.status.ok() || job.answer.verdict == Verdict::kWait) return true;
      shard.snapshot(job.result);
      job.reply = job.result;
      job.answer.steps = shard.steps();
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kPull:
      if (!shard.is_installed()) return false;
      return read(job, entry);
    case CallKind::kPush:
    case CallKind::kPushPull: return shard.is_installed() && awaited_ == 0 && advance_push(job, entry);
    case CallKind::kMap:
      if (options_.is_relaxed() && !shard.is_installed()) return false;
      tell_map(job, entry);
      return true;
    default: job.status = {Code::kMismatch, name_of(job.call.kind) + " is no call for a shard"}; return true;
  }
}

void Server::tell_map(Job& job, const Entry& entry) const {
  if (!options_.is_relaxed()) {
    job.status = {Code::kMismatch, "the shards of this service are not mapped: its consistency is atomic"};
    return;
  }
  auto* const text = reinterpret_cast<char*>(job.result);
  std::fill_n(text, kMapTextBytes, '\0');
  entry.shard.mapped()->handle().copy(text, kMapTextBytes - 1);
  job.reply = job.result;
}

bool Server::read(Job& job, Entry& entry) {
  if (job.is_remote && !job.buffer) {
    job.buffer = take_buffer_locked();
    if (!job.buffer) return false;
    job.result = job.buffer.get();
  }
  entry.shard.read(job.worker, job.result);
  job.reply = job.result;
  job.beginning = entry.shard.beginning();
  job.answer.shard_version = entry.shard.version();
  return true;
}

// ---- What it tells

Server::Stats Server::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Shard& shard = entries_[i].shard;
    if (!shard.is_installed()) continue;
    if (shard.mapped() != nullptr) stats.updates += shard.mapped()->updates();
    stats.versions[static_cast<int>(i)] = shard.version();
    const std::vector<uint64_t> staleness = shard.staleness();
    stats.staleness.resize(staleness.size());
    for (size_t row = 0; row < staleness.size(); ++row) stats.staleness[row] += staleness[row];
    stats.bytes += shard.bytes() + (entries_[i].sum ? shard.count() * sizeof(float) : 0);
  }
  stats.bytes += (free_.size() + static_cast<size_t>(buffers_out_)) * buffer_count_ * sizeof(float);
  stats.bytes += static_cast<size_t>(session_bytes_.load(std::memory_order_relaxed));
  if (!options_.is_relaxed()) stats.updates = updates_;
  stats.died = died_;
  return stats;
}

}  // namespace braid
