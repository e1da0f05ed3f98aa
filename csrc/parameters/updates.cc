// SPDX-License-Identifier: Apache-2.0
// In which order a server applies updates, and who gets a buffer for one.
#include <algorithm>
#include <climits>
#include <utility>

#include "base/log.h"
#include "parameters/server.h"

namespace braid {

uint64_t Server::least_clock(const Entry& entry) {
  uint64_t least = UINT64_MAX;
  for (const auto& [worker, progress] : entry.progress) {
    if (!progress.rests && progress.has_clock) least = std::min(least, progress.clock);
  }
  return least == UINT64_MAX ? 0 : least;
}

// It begins where the slowest of the others is. Where no clock of others is known, its own is not either: with 0 all
// would wait until it has made as many updates as they have.
Server::Progress Server::progress_of_newcomer(const Entry& entry) {
  const bool knows_one = std::any_of(entry.progress.begin(), entry.progress.end(),
                                     [](const auto& row) { return !row.second.rests && row.second.has_clock; });
  return {.clock = least_clock(entry), .has_clock = knows_one || entry.progress.empty()};
}

uint64_t Server::most_clock(const Entry& entry) {
  uint64_t most = 0;
  for (const auto& [worker, progress] : entry.progress) {
    if (!progress.rests && progress.has_clock) most = std::max(most, progress.clock);
  }
  return most;
}

// The turn goes to the worker with the next number, of those that do not rest.
bool Server::is_turn_of(int worker, const Entry& entry) {
  int first = -1, next = -1;
  for (const auto& [number, progress] : entry.progress) {
    if (progress.rests) continue;
    if (first < 0) first = number;
    if (next < 0 && number > entry.last) next = number;
  }
  return worker == (next >= 0 ? next : first);
}

void Server::rest(int worker, Entry& entry) {
  entry.progress[worker].rests = true;
  end_round_if_due(entry);
  wake_all_if_all_rest(entry);
}

void Server::wake_all_if_all_rest(Entry& entry) const {
  uint64_t most = 0;
  for (const auto& [worker, progress] : entry.progress) {
    if (!progress.rests) return;
    most = std::max(most, progress.clock);
  }
  for (auto& [worker, progress] : entry.progress) {
    progress.clock = most;
    progress.rests = options_.mode == Mode::kQuorum && !progress.has_pushed;
    progress.has_clock = true;
  }
}

// With kSsp nobody waits for ever. Say that at rest X has the smallest number of all, at shard j, so nobody holds it
// there. It waits at another shard i, with an update whose number is not larger, because each update goes to all shards
// with one number. So somebody at i has a smaller number than X at j, which cannot be. The proof needs equal numbers.
// Shards cannot find them alone: they see a worker wake at different moments, and then with s = 0 each could hold whom
// another one waits for. So the worker names its number, and is not held as long as it does not know it.
void Server::count_push(Job& job, Entry& entry) const {
  Progress& mine = entry.progress[job.worker];
  if (mine.has_clock) {
    mine.clock = std::max(mine.clock + 1, job.call.steps);
  } else if (job.call.steps > 0) {
    mine.clock = job.call.steps;
  } else {
    mine.clock = 1 + most_clock(entry);
  }
  mine.has_clock = true;
  job.answer.steps = mine.clock;
}

bool Server::wake(int worker, Entry& entry) const {
  Progress& mine = entry.progress[worker];
  if (!mine.rests) return true;
  if (options_.mode == Mode::kSync) return false;
  mine.clock = std::max(mine.clock, most_clock(entry));
  mine.rests = false;
  mine.has_clock = true;
  return true;
}

// ---- Buffers

int Server::turns_before(const Job& job) const {
  const auto index = static_cast<size_t>(job.call.shard);
  if (!is_push(job.call.kind) || index >= entries_.size()) return 0;
  const Entry& entry = entries_[index];
  if (has_moved(job, entry)) return 0;  // it is refused as soon as it is here
  if (!entry.is_here()) return 1;       // it waits for the shard, which comes in a buffer, too
  int before = 0;
  if (options_.has_rounds()) {
    const bool has_order = options_.mode == Mode::kSync;
    for (const auto& [worker, progress] : entry.progress) {
      if (worker == job.worker) {
        const bool has_to_wait =
            (progress.has_contributed && !options_.quorum.late_goes_on) || (has_order && progress.rests);
        return has_to_wait ? options_.buffers : before;
      }
      before += has_order && is_awaited(progress, entry) ? 1 : 0;
    }
  } else if (options_.mode == Mode::kRoundRobin) {
    for (const auto& [worker, progress] : entry.progress) {
      if (progress.rests) continue;
      // Workers between the one that pushed last and this one, in the circle of numbers.
      const bool after_last = worker > entry.last;
      const bool before_this = worker < job.worker;
      before += job.worker > entry.last ? (after_last && before_this) : (after_last || before_this);
    }
  }
  return before;
}

// Those that must wait leave one buffer for the ones that all wait for, and for pulls. A worker has a call for each
// shard at a time, and the buffers are for all shards.
int Server::buffers_for(const Job& job) const {
  constexpr int kNone = INT_MAX;
  if (!is_push(job.call.kind) || job.is_applied) return 1;
  if (awaited_ > 0) return kNone;  // else pushes that wait could take all buffers
  const int before = turns_before(job);
  if (before >= options_.buffers) return kNone;
  return before > 0 ? 2 : 1;
}

Floats Server::acquire(const Job& job) {
  const std::lock_guard lock(mutex_);
  return buffers_.take(job);
}

Buffers& Server::wholes_of(const Job& job) {
  return job.call.kind == CallKind::kRestore && job.call.hand_over == HandOver::kNo ? restores_ : wholes_;
}

Floats Server::acquire_whole(const Job& job) {
  const std::lock_guard lock(mutex_);
  return wholes_of(job).take(job);
}

void Server::release(Job& job) {
  if (!job.buffer && !job.whole) return;
  const std::lock_guard lock(mutex_);
  buffers_.give_back(std::move(job.buffer));
  wholes_of(job).give_back(std::move(job.whole));
  settle_locked();
}

// ---- Updates

bool Server::advance_push(Job& job, Entry& entry) {
  if (!job.is_applied && (waits_for_copy(entry) || !wake(job.worker, entry))) return false;
  if (options_.has_rounds()) return advance_round(job, entry);
  const bool pulls = job.call.kind == CallKind::kPushPull;
  const bool reads_now = pulls && options_.mode != Mode::kSsp;  // kSsp: the answer may have to wait
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
    job.beginning = entry.shard.beginning();
    entry.last = job.worker;
    count_push(job, entry);
    ++updates_;
    if (!reads_now) buffers_.give_back(std::move(job.buffer));
  }
  if (options_.mode != Mode::kSsp) return true;
  const bool is_ahead =
      job.call.place == 0 && progress.clock > least_clock(entry) + static_cast<uint64_t>(options_.staleness);
  // Slower workers push a shard that goes, or has gone, elsewhere. There this one waits for them with its next update.
  if (is_ahead && !is_leaving_ && !entry.is_given) return false;
  return !pulls || read(job, entry);
}

// ---- One update of the mean of all workers, or of those that come in time

// A server that was lost may have counted a push and not answered it. Then the worker repeats it, with its number.
bool Server::counts_already(const Job& job, const Entry& entry) const {
  return options_.mode == Mode::kSync && job.call.steps > 0 && job.call.steps <= entry.rounds;
}

// The worker's push for the present round was lost with a server, and others have values without it. So nobody waits
// for that push. If all have lost theirs, these rounds are over.
bool Server::is_for_later(const Job& job, Entry& entry) {
  if (options_.mode != Mode::kSync) return false;
  const bool is_new = std::exchange(entry.progress[job.worker].number, job.call.steps) != job.call.steps;
  if (job.call.steps <= entry.rounds + 1) return false;
  const uint64_t before = entry.rounds;
  end_round_if_due(entry);  // those that have contributed may have waited for this worker
  uint64_t least = UINT64_MAX;
  for (const auto& [worker, progress] : entry.progress) {
    if (!progress.rests) least = std::min(least, progress.has_contributed ? 0 : progress.number);
  }
  if (least > entry.rounds + 1) entry.rounds = least - 1;
  must_look_again_ |= is_new || entry.rounds != before;
  return job.call.steps > entry.rounds + 1;
}

// kSync: the values do not change until all workers have pushed again. So the answers come from the shard itself.
// kQuorum: they may change before. So an answer is a copy.
bool Server::advance_round(Job& job, Entry& entry) {
  Progress& mine = entry.progress[job.worker];
  if (!job.is_applied && counts_already(job, entry)) {
    job.is_applied = job.is_late = true;
    buffers_.give_back(std::move(job.buffer));
  }
  if (!job.is_applied) {
    if (is_for_later(job, entry)) return false;
    // To the round before this one, which goes on.
    if (mine.has_contributed && !options_.quorum.late_goes_on) return false;
    if (options_.mode == Mode::kSync) {
      for (const auto& [worker, progress] : entry.progress) {
        if (worker < job.worker && is_awaited(progress, entry)) return false;
      }
    }
    job.status = entry.shard.check(*job.table);
    if (!job.status.ok()) return true;
    const uint64_t version = entry.shard.version();
    job.answer.staleness =
        static_cast<uint32_t>(std::min<uint64_t>(version - std::min(job.call.base, version), UINT32_MAX));
    job.is_late = options_.quorum.late_goes_on && job.call.base < version;
    entry.came += mine.has_contributed ? 0 : 1;
    mine.has_contributed = mine.has_pushed = job.is_applied = true;
    add_to_round(job, entry);
    end_round_if_due(entry);
  }
  if (mine.has_contributed && !job.is_late) return false;
  if (options_.mode == Mode::kQuorum && job.call.kind == CallKind::kPushPull) return read(job, entry);
  if (job.call.kind == CallKind::kPushPull) {
    job.reply = entry.shard.values();
    job.beginning = entry.shard.beginning();
    if (!job.is_remote) read(job, entry);
  }
  job.answer.shard_version = entry.shard.version();
  job.answer.steps = entry.rounds;
  return true;
}

// The numbers of the rule are those of the push that is meant for the latest round: a worker that is late has old ones.
// kSync: workers contribute in the order of their numbers, so that the sum has the same bits in every run.
void Server::add_to_round(Job& job, Entry& entry) {
  const size_t count = entry.shard.count();
  if (!entry.sum) entry.sum = make_floats(count);
  float* sum = entry.sum.get();
  const float scale = job.call.scale;
  if (entry.summed == 0) {
    for (size_t i = 0; i < count; ++i) sum[i] = scale * job.update[i];
  } else {
    for (size_t i = 0; i < count; ++i) sum[i] += scale * job.update[i];
  }
  if (entry.summed == 0 || (options_.mode == Mode::kQuorum && job.call.base > entry.table_base)) {
    entry.table = *job.table;
    entry.table_base = job.call.base;
  }
  ++entry.summed;
  ++updates_;
  if (options_.mode == Mode::kQuorum && entry.came == options_.quorum.at_least && entry.ends_at == kNoDeadline) {
    entry.ends_at = Clock::now() + options_.quorum.grace;
    ring(bell_);  // the thread that calls end_late_rounds() may sleep for longer
  }
  buffers_.give_back(std::move(job.buffer));
}

void Server::end_round_if_due(Entry& entry) {
  if (entry.summed == 0) return;
  for (const auto& [worker, progress] : entry.progress) {
    if (is_awaited(progress, entry)) return;
  }
  end_round(entry);
}

Deadline Server::end_late_rounds() {
  if (options_.mode != Mode::kQuorum) return kNoDeadline;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  Deadline next = kNoDeadline;
  bool has_ended = false;
  for (Entry& entry : entries_) {
    if (entry.ends_at <= now) {
      end_round(entry);
      has_ended = true;
    }
    next = std::min(next, entry.ends_at);
  }
  if (has_ended) settle_locked();
  return next;
}

void Server::end_round(Entry& entry) {
  entry.ends_at = kNoDeadline;
  if (entry.summed == 0) return;
  const float mean = 1.0f / static_cast<float>(std::exchange(entry.summed, 0));
  entry.came = 0;
  if (entry.shard.version() < options_.quorum.mean_rounds) {
    entry.shard.subtract(entry.sum.get(), mean);
  } else {
    const auto applied =
        entry.shard.apply({-1, entry.sum.get(), nullptr, entry.table, mean, entry.shard.version()});
    if (!applied.ok()) log(LogLevel::kWarning, "a parameter server: " + applied.status().message());
  }
  for (auto& [worker, progress] : entry.progress) {
    if (progress.has_contributed) ++progress.clock;
    progress.has_contributed = false;
  }
  ++entry.rounds;
}

}  // namespace braid
