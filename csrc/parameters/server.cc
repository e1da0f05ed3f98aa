// SPDX-License-Identifier: Apache-2.0
#include "parameters/server.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {
namespace {

Status not_here(int worker) { return {Code::kAborted, worker_text(worker) + " has left, or has never joined"}; }

}  // namespace

Server::Server(const ServerOptions& options, std::vector<Extent> extents, DoorbellWord& bell)
    : options_(options),
      extents_(std::move(extents)),
      state_vectors_(braid::state_vectors(options.rule)),
      bell_(bell),
      buffers_(
          options.buffers, Buffers::Spares::kKept, [this](const Job& job) { return buffers_for(job); }, bell),
      wholes_(
          kWholeBuffers, Buffers::Spares::kFreed, [](const Job&) { return 1; }, bell),
      restores_(
          kRestoreBuffers, Buffers::Spares::kFreed, [](const Job&) { return 1; }, bell),
      memory_(options.budget, options.promised_bytes) {
  for (const Extent& extent : extents_) {
    entries_.emplace_back(Shard(extent.begin, extent.count, options_.shard_rule(), options_.is_relaxed()));
    most_count_ = std::max(most_count_, extent.count);
  }
  buffers_.set_size(buffer_floats(options_, most_count_));
  wholes_.set_size(whole_floats(options_, most_count_));
  restores_.set_size(wholes_.size());
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
  if (is_source(worker)) {
    sources_.insert(worker);
    return {};
  }
  if (workers_.contains(worker)) {
    return {Code::kInvalidArgument, worker_text(worker) +
                                        " is here already: another process has that number. Give this one another "
                                        "number, or wait until the other one has ended"};
  }
  if (workers_.size() >= options_.promised_workers && !reach_memory(workers_.size() + 1)) {
    return {Code::kSystem, "it has no memory for one worker more than the " + std::to_string(workers_.size()) +
                               " that are here: give it more with --memory"};
  }
  workers_.insert(worker);
  given_up_by_.erase(worker);
  for (Entry& entry : entries_) entry.progress[worker] = progress_of_newcomer(entry);
  return {};
}

void Server::has_heard(int worker) {
  if (is_source(worker)) return;
  const std::lock_guard lock(mutex_);
  have_heard_.insert(worker);
  const auto here = std::distance(have_heard_.begin(), have_heard_.lower_bound(awaited_));
  if (awaited_ == 0 || here < awaited_) return;
  awaited_ = 0;
  settle_locked();
}

void Server::dismiss(int worker, bool died, const std::string& loss) {
  const std::lock_guard lock(mutex_);
  sources_.erase(worker);
  if (workers_.erase(worker) == 0) return;
  left_last_ = worker;
  have_called_.erase(worker);
  if (died) ++died_;
  if (!loss.empty()) lost_.push_back(loss);
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
    wake_all_if_all_rest(entry);
  }
  settle_locked();
}

void Server::note_given_up(int worker) {
  const std::lock_guard lock(mutex_);
  if (!is_source(worker)) given_up_by_.insert(worker);
}

bool Server::is_given_up(int own) const {
  const std::lock_guard lock(mutex_);
  return given_up_by_.contains(left_last_) && closed_.ok() &&
         std::all_of(workers_.begin(), workers_.end(), [own](int worker) { return worker == own; });
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
  const bool is_copy = job.call.kind == CallKind::kReplica;
  if (!(is_copy ? sources_ : workers_).contains(job.worker)) return fail(job, not_here(job.worker));
  if (lane_of(job.call) > 0 && job.call.kind != CallKind::kAttend) ++calls_;
  have_called_.insert(job.worker);
  waiting_.push_back(&job);
  settle_locked();
}

void Server::cancel(Job& job) {
  const std::lock_guard lock(mutex_);
  waiting_.remove(&job);
  forget_place(job);
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
  bool has_moved = false;
  for (bool moved = true; moved; has_moved |= moved) {
    moved = false;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      Job& job = **at;
      const bool was_applied = job.is_applied;
      bool is_done = false;
      const Status thrown = caught("a call of a worker", [&] { is_done = advance_locked(job); });
      if (!thrown.ok()) job.status = thrown;  // else it would end the session that happens to look
      if (thrown.ok() && !is_done) {
        moved |= job.is_applied != was_applied || std::exchange(must_look_again_, false);
        ++at;
        continue;
      }
      at = waiting_.erase(at);
      moved = true;
      forget_place(job);
      if (!job.status.ok()) {
        job.answer.verdict = Verdict::kFailed;
        job.answer.code = job.status.code();
      }
      job.done.store(true, std::memory_order_release);  // from here on its maker may destroy it
      ring(bell_);
    }
  }
  if (!has_moved) return;
  buffers_.look_again();
  wholes_.look_again();
  restores_.look_again();
}

void Server::forget_place(const Job& job) {
  buffers_.forget(job);
  wholes_.forget(job);  // not by its kind: the call may be arriving
  restores_.forget(job);
}

void Server::fail(Job& job, Status why) {
  forget_place(job);
  job.answer.verdict = Verdict::kFailed;
  job.answer.code = why.code();
  job.status = std::move(why);
  job.done.store(true, std::memory_order_release);
  ring(bell_);
}

// ---- Calls

bool Server::advance_locked(Job& job) {
  if (job.call.kind == CallKind::kAttend) return tell_leave(job);
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
        entry.rounds = job.call.steps;
        entry.is_given = entry.is_dormant = entry.is_reserved = false;
        entry.given_to = entry.gone_to = -1;
        entry.moves = std::max({entry.moves, job.call.moves, entry.adoption.most_moves()});
        if (job.call.hand_over != HandOver::kNo) entry.losses = Losses::read(job.update + shard.count());
        if (!entry.adoption.offers.empty()) entry.losses.add(entry.moves, job.call.base);
        if (has_copy(entry, job)) {
          add_state_of_copy(job, entry);
        } else if (!entry.adoption.offers.empty()) {
          log(LogLevel::kWarning, "a parameter server took over shard " + std::to_string(job.call.shard) +
                                      " at version " + std::to_string(job.call.base) + " from " +
                                      worker_text(job.worker) + "; the state of the update rule begins anew");
        }
        if (!entry.adoption.offers.empty()) forget_clocks(entry);
        entry.copy = {};
        entry.adoption = {};
      }
      job.answer.moves = entry.moves;
      job.answer.shard_version = shard.version();
      job.answer.steps = left_of(job, entry);
      return true;
    case CallKind::kAdopt:
      job.answer.verdict = adopt_locked(job, entry);
      job.answer.moves = entry.moves;
      job.answer.steps = left_of(job, entry);
      return true;
    case CallKind::kFind:
      job.answer.verdict = entry.is_here() ? Verdict::kDone : Verdict::kWait;
      job.answer.moves = entry.moves;
      job.answer.steps = entry.is_here() ? left_of(job, entry) : 0;
      if (!entry.is_here() && has_copy(entry, job)) {
        job.answer.steps = 1;
        job.answer.shard_version = entry.copy.version;
      }
      return true;
    case CallKind::kOffer: tell_offer(job); return true;
    case CallKind::kMoved: note_move(job, entry); return true;
    case CallKind::kReplica: keep_copy(job, entry); return true;
    case CallKind::kRestore:
      if (job.call.hand_over == HandOver::kNo) {
        job.status = shard.restore(job.update, job.call.steps, std::max(shard.version() + 1, job.call.base));
      } else {
        take(job, entry);
      }
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kSnapshot:
      if (job.call.hand_over == HandOver::kShare) {
        share(job, entry);
        return true;
      }
      if (!shard.is_installed() || !find_whole(job)) return false;
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
    case CallKind::kRest:
      if (!shard.is_installed() || awaited_ > 0) return false;
      rest(job.worker, entry);
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kLook:
      if (!shard.is_installed()) return false;
      job.answer.shard_version = shard.version();
      return true;
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

bool Server::find_whole(Job& job) {
  if (!job.is_remote || job.whole) return true;
  job.whole = wholes_.take(job);
  job.result = job.whole.get();
  return job.whole != nullptr;
}

bool Server::read(Job& job, Entry& entry) {
  if (job.is_remote && !job.buffer) {
    job.buffer = buffers_.take(job);
    if (!job.buffer) return false;
    job.result = job.buffer.get();
  }
  entry.shard.read(job.worker, job.result);
  job.reply = job.result;
  job.beginning = entry.shard.beginning();
  job.answer.shard_version = entry.shard.version();
  if (options_.mode == Mode::kSync) job.answer.steps = entry.rounds;
  return true;
}

// ---- Memory

bool Server::reach_memory(size_t workers, const Entry* shard, const Entry* copy) {
  std::vector<Holding> holdings;
  for (const Entry& entry : entries_) {
    const bool is_here = entry.shard.is_installed();
    const bool is_expected = !is_here && (&entry == shard || entry.is_reserved);
    const bool has_copy =
        (&entry == copy || !entry.copy.numbers.empty()) && !is_expected;  // a shard takes its place
    holdings.push_back({entry.shard.count(), is_here || is_expected, has_copy});
  }
  return memory_.reach(bytes_needed(options_, most_count_, holdings, workers));
}

void Server::refuse_for_memory(Job& job, const Entry& entry) const {
  job.answer.has_moved = kLacksMemory;
  job.status = {Code::kSystem, "it has no memory for shard " + std::to_string(job.call.shard) + " of " +
                                   std::to_string(entry.shard.count()) + " numbers"};
}

// ---- What it tells

Server::Stats Server::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Shard& shard = entries_[i].shard;
    stats.bytes += entries_[i].copy.numbers.size() * sizeof(float);
    if (!shard.is_installed()) continue;
    if (entries_[i].has_backup) stats.copied[static_cast<int>(i)] = entries_[i].copied;
    if (shard.mapped() != nullptr) stats.updates += shard.mapped()->updates();
    stats.versions[static_cast<int>(i)] = shard.version();
    const std::vector<uint64_t> staleness = shard.staleness();
    stats.staleness.resize(staleness.size());
    for (size_t row = 0; row < staleness.size(); ++row) stats.staleness[row] += staleness[row];
    stats.bytes += shard.bytes() + (entries_[i].sum ? shard.count() * sizeof(float) : 0);
  }
  stats.bytes += buffers_.bytes() + wholes_.bytes() + restores_.bytes();
  stats.bytes += static_cast<size_t>(session_bytes_.load(std::memory_order_relaxed));
  if (!options_.is_relaxed()) stats.updates = updates_;
  stats.calls = calls_;
  stats.died = died_;
  stats.lost = lost_;
  return stats;
}

}  // namespace braid
