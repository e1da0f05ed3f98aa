// SPDX-License-Identifier: Apache-2.0
// Starts a group's collectives. Each is queued for the progress thread, or the calling thread carries it.
#include <thread>
#include <utility>

#include "base/caught.h"
#include "communicator/checks.h"
#include "group/collective_task.h"
#include "group/group.h"
#include "group/queue.h"
#include "group/refusal.h"
#include "group/replan.h"
#include "group/signature.h"

namespace braid {
namespace {

// How often to look for the messages of a small operation before making its task; about ten microseconds. It is
// less if ranks share cores, because the others need the core.
constexpr int kLooks = 1024;
constexpr int kLooksInACrowd = 4;

// Ends a task that no thread carries any more.
void end(Task& task, const Status& why) {
  while (!task.fail(why)) std::this_thread::sleep_for(milliseconds(1));
}

// The result of run(): the task's work if it is not done, its error if it has failed, or else null.
Result<std::shared_ptr<Work>> result_for_run(const CollectiveTask& task) {
  if (!task.outcome()) return task.work();
  if (!task.outcome()->ok()) return *task.outcome();
  return std::shared_ptr<Work>();
}

}  // namespace

Result<std::shared_ptr<Work>> Group::start(Operation operation, bool inline_if_idle) {
  if (inline_if_idle && wires_.board) {
    std::unique_lock lock(mutex_);
    if (PreparedOperation* prepared = prepared_locked(operation)) {
      return run_prepared(*prepared, std::move(operation), true, std::move(lock));
    }
  }
  auto task = launch(std::move(operation), inline_if_idle, true);
  if (!task.ok()) return task.status();
  return task.value()->work();
}

Result<std::shared_ptr<Work>> Group::run(Operation operation) {
  if (wires_.board) {
    std::unique_lock lock(mutex_);
    if (PreparedOperation* prepared = prepared_locked(operation)) {
      return run_prepared(*prepared, std::move(operation), false, std::move(lock));
    }
  }
  auto task = launch(std::move(operation), true, false);
  if (!task.ok()) return task.status();
  return result_for_run(*task.value());
}

Result<std::shared_ptr<CollectiveTask>> Group::launch(Operation operation, bool inline_if_idle, bool watched) {
  Result<std::shared_ptr<CollectiveTask>> launched = Status();
  bool is_counted = false;
  const Status thrown = caught("starting an operation", [&] {
    launched = launch_unguarded(std::move(operation), inline_if_idle, watched, &is_counted);
  });
  if (thrown.ok()) return launched;
  if (is_counted) {
    mailbox_.fail_here(thrown);
    drain_queue(thrown);
  }
  return thrown;
}

Result<std::shared_ptr<CollectiveTask>> Group::launch_unguarded(Operation operation, bool inline_if_idle,
                                                                bool watched, bool* is_counted) {
  if (Status bad = check_operation(operation, member_.rank, member_.ranks); !bad.ok()) {
    return bad.within(std::string(name_of(operation.kind)));
  }
  if (operation.kind == CollectiveKind::kBarrier) {  // drop its other arguments: they need not agree between ranks
    operation =
        Operation{.kind = operation.kind, .timeout = operation.timeout, .inline_for = operation.inline_for};
  }
  if (operation.kind != CollectiveKind::kAllReduce && member_.options.aggregators > 0) {
    return Status(Code::kUnsupported, std::string(name_of(operation.kind)) + " in a group with aggregators");
  }
  if (operation.lossy && member_.options.aggregators > 0) {
    return Status(Code::kUnsupported, "a lossy operation in a group with aggregators, which keep no residuals");
  }
  if (!choice_.is_on_several_hosts()) operation.lossy.reset();
  const auto route = choice_.route_for(operation);
  if (!route.ok()) return route.status();

  const auto now = Clock::now();
  const milliseconds inline_for = operation.inline_for;
  const Deadline deadline = deadline_after(timeout_.of(operation.timeout), now);
  std::unique_lock lock(mutex_);
  *is_counted = true;
  const bool replan_due = replanner_.is_due(operation);
  const bool prepares = inline_if_idle && wires_.board && !inline_running_ && prepared_.find(operation) == nullptr;
  if (prepares) prepared_.prepare(operation, *route.value(), member_.rank);
  auto task = std::make_shared<CollectiveTask>(context_, sequence_ + 1, std::move(operation), *route.value(), now,
                                               deadline);
  if (watched) task->make_work();
  if (Status closed = refusal(mailbox_, member_.name, shut_down_); !closed.ok())
    return closed.within(task->what());
  ++sequence_;
  if (replan_due)
    queue_.push_back(std::make_shared<ReplanTask>(replanner_, mailbox_, member_.engine->bell(), deadline));
  if (inline_if_idle && queue_.empty() && !inline_running_) {
    inline_running_ = true;
    lock.unlock();
    carry_inline(task, now, inline_for);
    return task;
  }
  task->make_work();
  queue_.push_back(task);
  if (Status bad = carry_queue_locked(); !bad.ok()) {
    lock.unlock();
    mailbox_.fail_here(bad);
    drain_queue(bad);
    return bad;
  }
  return task;
}

void Group::carry_inline(const std::shared_ptr<CollectiveTask>& task, Clock::time_point now, milliseconds limit) {
  task->begin_at(now);
  const bool done = carry(*task, member_.engine->bell(), member_.engine->neighbours(), deadline_after(limit, now));
  bool queued = false;
  Status bad;
  {
    const std::lock_guard lock(mutex_);
    inline_running_ = false;
    if (done) return inline_ended_locked();
    bad = caught("handing an operation over", [&] {
      task->make_work();
      queue_.push_front(task);  // it was started before the queued operations
      queued = true;
    });
    if (bad.ok()) bad = carry_queue_locked();
  }
  if (bad.ok()) return;
  mailbox_.fail_here(bad);
  if (!queued) end(*task, bad);
  drain_queue(bad);
}

void Group::inline_ended_locked() {
  ended_.notify_all();
  if (!queue_.empty()) ring(member_.engine->bell());
}

// ---- Prepared operations

// Null if an operation is queued or the group's state has changed. Then launch() handles the change and reports
// errors.
PreparedOperation* Group::prepared_locked(const Operation& operation) {
  if (!queue_.empty() || inline_running_ || shut_down_ || operation.lossy || mailbox_.has_ended()) return nullptr;
  PreparedOperation* prepared = prepared_.find(operation);
  if (prepared == nullptr || prepared->route->epoch != choice_.epoch()) return nullptr;
  return check_overlap(operation, member_.rank).ok() ? prepared : nullptr;
}

Result<std::shared_ptr<Work>> Group::run_prepared(PreparedOperation& prepared, Operation operation, bool watched,
                                                  std::unique_lock<std::mutex> lock) {
  inline_running_ = true;  // launch() prepares, and so forgets, no operation while this is set
  const uint64_t sequence = ++sequence_;
  lock.unlock();
  Result<std::shared_ptr<Work>> left = Status();
  const Status thrown = caught("carrying a small operation",
                               [&] { left = carry_prepared(prepared, std::move(operation), watched, sequence); });
  if (thrown.ok()) return left;
  mailbox_.fail_here(thrown);
  lock.lock();
  inline_running_ = false;
  inline_ended_locked();
  return thrown;
}

// If it throws, inline_running_ is still set.
Result<std::shared_ptr<Work>> Group::carry_prepared(PreparedOperation& prepared, Operation operation, bool watched,
                                                    uint64_t sequence) {
  const auto now = Clock::now();
  const size_t bytes = memory_bytes(operation);
  std::shared_ptr<Work> work;
  if (watched) {
    work = std::make_shared<Work>(description_of(operation, bytes, *prepared.route, sequence), sequence, now);
  }
  peers_.announce(sequence, prepared.signature, false);
  const SingleRound::Memory memory{operation.inputs, operation.outputs};
  const uint64_t digest = digest_of(sequence, prepared.signature);
  const bool posted = prepared.round.post(memory, *wires_.board, digest);
  const int looks = wires_.ranks_per_core > 1 ? kLooksInACrowd : kLooks;
  if (posted && prepared.round.complete(memory, *wires_.board, digest, looks)) {
    const auto finished = Clock::now();
    const double seconds = std::chrono::duration<double>(finished - now).count();
    statistics_.record(*prepared.route->counters, bytes, seconds);
    if (work) work->finish({}, {}, finished);
    const std::lock_guard lock(mutex_);
    inline_running_ = false;
    inline_ended_locked();
    return work;
  }
  const milliseconds limit = operation.inline_for;
  const Deadline deadline = deadline_after(timeout_.of(operation.timeout), now);
  auto task =
      std::make_shared<CollectiveTask>(context_, sequence, std::move(operation), *prepared.route, now, deadline);
  if (posted) task->set_posted();
  task->set_work(work);
  carry_inline(task, now, limit);
  return work ? work : result_for_run(*task);
}

Status Group::carry_queue_locked() {
  if (queue_is_carried_) {
    ring(member_.engine->bell());
    return {};
  }
  Status bad;
  const Status thrown = caught("queueing an operation", [&] {
    bad = member_.engine->progress().add(
        std::make_shared<QueueTask>(std::shared_ptr<Queue>(shared_from_this(), this)));
  });
  if (!thrown.ok()) bad = thrown;
  queue_is_carried_ = bad.ok();
  return bad;
}

void Group::drain_queue(const Status& why) {
  std::unique_lock lock(mutex_);
  while (!queue_.empty() && !carry_queue_locked().ok()) {
    const std::shared_ptr<Task> head = queue_.front();
    queue_.pop_front();
    lock.unlock();
    end(*head, why);
    lock.lock();
  }
  ended_.notify_all();
}

Queue::Turn Group::turn() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) queue_is_carried_ = false;
  return {queue_.empty() ? nullptr : queue_.front(), inline_running_};
}

void Group::pop_head() {
  const std::lock_guard lock(mutex_);
  queue_.pop_front();
  ended_.notify_all();
}

}  // namespace braid
