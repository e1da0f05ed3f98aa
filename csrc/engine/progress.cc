// SPDX-License-Identifier: Apache-2.0
#include "engine/progress.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/caught.h"

namespace braid {

Task::Step take_turn(Task& task, bool before_sleep) {
  Task::Step step = Task::Step::kMoved;
  const Status thrown = caught("carrying an operation", [&] { step = task.advance(before_sleep); });
  if (thrown.ok()) return step;
  return task.fail(thrown) ? Task::Step::kDone : Task::Step::kMoved;
}

bool carry(Task& task, DoorbellWord& bell, const Neighbours& neighbours, Deadline until) {
  Waiter waiter(bell, &neighbours);
  for (unsigned turn = 1;; ++turn) {
    const Task::Step step = take_turn(task, waiter.before_sleep());
    if (step == Task::Step::kDone) return true;
    // Every 16 turns only: reading the clock takes longer than a turn.
    if (turn % 16 == 0 && until != kNoDeadline && Clock::now() >= until) return false;
    if (step == Task::Step::kMoved) {
      waiter.moved();
    } else {
      waiter.idle(std::min(task.deadline(), until), step == Task::Step::kAfar);
    }
  }
}

ProgressThread::~ProgressThread() {
  if (!thread_.joinable()) return;
  if (pid_ != ::getpid()) {
    thread_.detach();  // this is a forked child; the thread runs in the parent only
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
    return;
  }
  ring(bell_);
  thread_.join();
}

Status ProgressThread::add(std::shared_ptr<Task> task) {
  std::list<std::shared_ptr<Task>> added;
  Status bad = caught("giving a task to the progress thread", [&] { added.push_back(std::move(task)); });
  if (!bad.ok()) return bad;
  {
    const std::lock_guard lock(state_->mutex);
    if (bad = start_locked(); !bad.ok()) return bad;
    state_->added.splice(state_->added.end(), added);
    state_->changed.notify_all();
  }
  ring(bell_);
  return {};
}

Status ProgressThread::start_locked() {
  if (thread_.joinable()) return {};
  pid_ = ::getpid();
  // Block all signals here: the user's program handles them in its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status started = caught("starting the progress thread", [&] {
    thread_ =
        std::thread([state = state_, &bell = bell_, &neighbours = neighbours_] { loop(state, bell, neighbours); });
    ::pthread_setname_np(thread_.native_handle(), "braid-progress");
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void ProgressThread::loop(const std::shared_ptr<State>& state, DoorbellWord& bell, const Neighbours& neighbours) {
  std::list<std::shared_ptr<Task>> tasks;
  Waiter waiter(bell, &neighbours);
  while (!state->is_stopping()) {
    {
      std::unique_lock lock(state->mutex);
      // Without tasks, sleep on the condition variable. A sleeper on the bell would make every peer ring for it.
      if (tasks.empty()) {
        waiter.moved();
        state->changed.wait(lock, [&] { return state->stopping || !state->added.empty(); });
      }
      tasks.splice(tasks.end(), state->added);
    }
    bool moved = false;
    bool afar = true;  // true if all tasks wait for other hosts
    Deadline earliest = kNoDeadline;
    for (auto& task : tasks) {
      const Task::Step step = take_turn(*task, waiter.before_sleep());
      moved |= step == Task::Step::kMoved || step == Task::Step::kDone;
      afar &= step == Task::Step::kAfar;
      if (step == Task::Step::kDone) {
        waiter.moved();
        task.reset();  // may destroy the engine and its bell, so the waiter has let go of the bell before
      } else {
        earliest = std::min(earliest, task->deadline());
      }
    }
    tasks.remove(nullptr);
    if (moved) {
      waiter.moved();
    } else if (!state->is_stopping()) {
      waiter.idle(earliest, afar);
    }
  }
}

}  // namespace braid
