// SPDX-License-Identifier: Apache-2.0
#include "parameters/server.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace braid {
namespace {

// How long a server waits until all workers have said which version of a lost shard they have.
constexpr milliseconds kOffersDue{1000};
// How long the chosen worker may take to begin to install a shard. Then another one is chosen.
constexpr milliseconds kInstallDue{10'000};

bool is_push(CallKind kind) { return kind == CallKind::kPush || kind == CallKind::kPushPull; }


}  // namespace

Result<Mode> mode_from_text(const std::string& text) {
  if (text == "async") return Mode::kAsync;
  if (text == "round_robin") return Mode::kRoundRobin;
  if (text == "ssp") return Mode::kSsp;
  if (text == "sync") return Mode::kSync;
  return Status(Code::kInvalidArgument,
                "mode is '" + text + "', expected 'async', 'round_robin', 'ssp' or 'sync'");
}

Server::Server(const ServerOptions& options, std::vector<Extent> extents, DoorbellWord& bell)
    : options_(options),
      extents_(std::move(extents)),
      state_vectors_(braid::state_vectors(options.rule)),
      bell_(bell) {
  for (const Extent& extent : extents_) {
    entries_.emplace_back(Shard(extent.begin, extent.count, options_.rule, options_.divides_by_staleness));
    most_count_ = std::max(most_count_, extent.count);
  }
}

// ---- Workers

Status Server::admit(int worker, const std::string& settings) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  have_come_.insert(worker);
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

void Server::dismiss(int worker, bool died) {
  const std::lock_guard lock(mutex_);
  if (workers_.erase(worker) == 0) return;
  if (died) ++died_;
  for (Entry& entry : entries_) {
    entry.progress.erase(worker);
    entry.adoption.offers.erase(worker);
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
  return static_cast<int>(std::distance(have_come_.begin(), have_come_.lower_bound(below)));
}

Status Server::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

uint64_t Server::least_clock(const Entry& entry) {
  uint64_t least = UINT64_MAX;
  for (const auto& [worker, progress] : entry.progress) least = std::min(least, progress.clock);
  return least == UINT64_MAX ? 0 : least;
}

// The turn goes to the living worker with the next number.
bool Server::is_turn_of(int worker, const Entry& entry) const {
  auto next = workers_.upper_bound(entry.last);
  if (next == workers_.end()) next = workers_.begin();
  return next != workers_.end() && *next == worker;
}

// ---- Jobs

void Server::submit(Job& job) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) {
    fail(job, closed_);
    return;
  }
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

// ---- Buffers

int Server::turns_before(const Job& job) const {
  const auto index = static_cast<size_t>(job.call.shard);
  if (!is_push(job.call.kind) || index >= entries_.size()) return 0;
  const Entry& entry = entries_[index];
  int before = 0;
  if (options_.mode == Mode::kSync) {
    for (const auto& [worker, progress] : entry.progress) {
      if (worker == job.worker) return progress.has_contributed ? options_.buffers : before;
      before += progress.has_contributed ? 0 : 1;
    }
  } else if (options_.mode == Mode::kRoundRobin) {
    for (const int worker : workers_) {
      // Workers between the one that pushed last and this one, in the circle of numbers.
      const bool after_last = worker > entry.last;
      const bool before_this = worker < job.worker;
      before += job.worker > entry.last ? (after_last && before_this) : (after_last || before_this);
    }
  }
  return before;
}

Floats Server::take_buffer_locked() {
  if (buffers_out_ >= options_.buffers) return nullptr;
  Floats buffer = free_.empty() ? make_floats(most_count_) : std::move(free_.back());
  if (!free_.empty()) free_.pop_back();
  ++buffers_out_;
  return buffer;
}

void Server::give_back_locked(Floats buffer) {
  if (!buffer) return;
  --buffers_out_;
  free_.push_back(std::move(buffer));
}

Floats Server::acquire(const Job& job) {
  const std::lock_guard lock(mutex_);
  return turns_before(job) < options_.buffers ? take_buffer_locked() : nullptr;
}

void Server::release(Floats buffer) {
  const std::lock_guard lock(mutex_);
  give_back_locked(std::move(buffer));
  settle_locked();
}

// ---- Calls

bool Server::advance_locked(Job& job) {
  const auto index = static_cast<size_t>(job.call.shard);
  if (index >= entries_.size() || job.call.count != entries_[index].shard.count()) {
    job.status = {Code::kMismatch, name_of(job.call.kind) + " names shard " + std::to_string(job.call.shard) + " of " +
                                       std::to_string(job.call.count) + " numbers, which is not a shard here"};
    return true;
  }
  Entry& entry = entries_[index];
  Shard& shard = entry.shard;
  switch (job.call.kind) {
    case CallKind::kInstall:
      if (!shard.is_installed()) {
        shard.install(job.update, job.call.base);
        if (!entry.adoption.offers.empty()) {
          log(LogLevel::kWarning, "a parameter server took over shard " + std::to_string(job.call.shard) +
                                      " at version " + std::to_string(job.call.base) + " from " +
                                      worker_text(job.worker) + "; the state of the update rule begins anew");
        }
      }
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kAdopt: job.answer.verdict = adopt_locked(job, entry); return true;
    case CallKind::kRestore:
      shard.restore(job.update, job.call.steps);
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kSnapshot:
      if (!shard.is_installed()) return false;
      shard.snapshot(job.result);
      job.reply = job.result;
      job.answer.steps = shard.steps();
      job.answer.shard_version = shard.version();
      return true;
    case CallKind::kPull:
      if (!shard.is_installed()) return false;
      return read(job, entry);
    case CallKind::kPush:
    case CallKind::kPushPull: return shard.is_installed() && advance_push(job, entry);
    default: job.status = {Code::kMismatch, name_of(job.call.kind) + " is no call for a shard"}; return true;
  }
}

bool Server::read(Job& job, Entry& entry) {
  if (job.is_remote && !job.buffer) {
    job.buffer = take_buffer_locked();
    if (!job.buffer) return false;
    job.result = job.buffer.get();
  }
  entry.shard.read(job.worker, job.result);
  job.reply = job.result;
  job.answer.shard_version = entry.shard.version();
  return true;
}

bool Server::advance_push(Job& job, Entry& entry) {
  if (options_.mode == Mode::kSync) return advance_sync(job, entry);
  const bool pulls = job.call.kind == CallKind::kPushPull;
  const bool reads_now = pulls && options_.mode != Mode::kSsp;
  Progress& progress = entry.progress[job.worker];
  if (!job.is_applied) {
    if (options_.mode == Mode::kRoundRobin && !is_turn_of(job.worker, entry)) return false;
    auto stale = entry.shard.apply(
        {job.worker, job.update, reads_now ? job.result : nullptr, *job.table, job.call.scale, job.call.base});
    if (!stale.ok()) {
      job.status = stale.status();
      return true;
    }
    job.is_applied = true;
    job.answer.staleness = stale.value();
    job.answer.shard_version = entry.shard.version();
    if (reads_now) job.reply = job.result;
    entry.last = job.worker;
    ++progress.clock;
    ++updates_;
    if (!reads_now) give_back_locked(std::move(job.buffer));
  }
  if (!pulls || reads_now) return true;
  if (progress.clock > least_clock(entry) + static_cast<uint64_t>(options_.staleness)) return false;
  return read(job, entry);
}

// ---- One update of the mean of all workers

// The values do not change until all workers have pushed again. So the answers come from the shard itself.
bool Server::advance_sync(Job& job, Entry& entry) {
  Progress& mine = entry.progress[job.worker];
  if (!job.is_applied) {
    if (mine.has_contributed) return false;  // to the round before this one, which goes on
    for (const auto& [worker, progress] : entry.progress) {
      if (worker < job.worker && !progress.has_contributed) return false;
    }
    job.status = entry.shard.check(*job.table);
    if (!job.status.ok()) return true;
    add_to_round(job, entry);
    mine.has_contributed = job.is_applied = true;
    end_round_if_due(entry);
  }
  if (mine.has_contributed) return false;
  if (job.call.kind == CallKind::kPushPull) {
    job.reply = entry.shard.values();
    if (!job.is_remote) read(job, entry);
  }
  job.answer.shard_version = entry.shard.version();
  return true;
}

// Workers contribute in the order of their numbers, so that the sum has the same bits in every run.
void Server::add_to_round(Job& job, Entry& entry) {
  const size_t count = entry.shard.count();
  if (!entry.sum) entry.sum = make_floats(count);
  float* sum = entry.sum.get();
  const float scale = job.call.scale;
  if (entry.summed == 0) {
    for (size_t i = 0; i < count; ++i) sum[i] = scale * job.update[i];
    entry.table = *job.table;
  } else {
    for (size_t i = 0; i < count; ++i) sum[i] += scale * job.update[i];
  }
  ++entry.summed;
  ++updates_;
  give_back_locked(std::move(job.buffer));
}

void Server::end_round_if_due(Entry& entry) {
  if (entry.summed == 0) return;
  for (const auto& [worker, progress] : entry.progress) {
    if (!progress.has_contributed) return;
  }
  const float mean = 1.0f / static_cast<float>(std::exchange(entry.summed, 0));
  const auto applied =
      entry.shard.apply({-1, entry.sum.get(), nullptr, entry.table, mean, entry.shard.version()});
  if (!applied.ok()) log(LogLevel::kWarning, "a parameter server: " + applied.status().message());
  for (auto& [worker, progress] : entry.progress) {
    progress.has_contributed = false;
    ++progress.clock;
  }
}

// ---- Shards of lost servers

// All workers that had the lost server ask its successor. The one with the newest values installs them.
Verdict Server::adopt_locked(const Job& job, Entry& entry) {
  if (entry.shard.is_installed()) return Verdict::kDone;
  if (owner_lives_ && owner_lives_(job.call.shard)) return Verdict::kWait;
  Adoption& adoption = entry.adoption;
  const auto now = Clock::now();
  if (adoption.offers.empty()) adoption.began = now;
  adoption.offers[job.worker] = job.call.base;
  const bool is_chosen_gone = !adoption.offers.contains(adoption.chosen) || now > adoption.chosen_at + kInstallDue;
  const bool have_all_offered = adoption.offers.size() >= workers_.size();
  if (is_chosen_gone && (have_all_offered || now > adoption.began + kOffersDue)) {
    const auto newest = std::max_element(adoption.offers.begin(), adoption.offers.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    adoption.chosen = newest->first;
    adoption.chosen_at = now;
  }
  return adoption.chosen == job.worker ? Verdict::kSend : Verdict::kWait;
}

// ---- What it tells

Server::Stats Server::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Shard& shard = entries_[i].shard;
    if (!shard.is_installed()) continue;
    stats.versions[static_cast<int>(i)] = shard.version();
    stats.staleness.resize(shard.staleness().size());
    for (size_t row = 0; row < shard.staleness().size(); ++row) stats.staleness[row] += shard.staleness()[row];
    stats.bytes += shard.bytes() + (entries_[i].sum ? shard.count() * sizeof(float) : 0);
  }
  stats.bytes += (free_.size() + static_cast<size_t>(buffers_out_)) * most_count_ * sizeof(float);
  stats.updates = updates_;
  stats.died = died_;
  return stats;
}

}  // namespace braid
