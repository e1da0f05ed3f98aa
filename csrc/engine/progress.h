// SPDX-License-Identifier: Apache-2.0
// The thread that carries queued operations of all groups of a process. It never waits for one group while another
// can move.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "transport/doorbell.h"

namespace braid {

// Something that is moved on until it is done.
class Task {
 public:
  enum class Step {
    kIdle,
    kAfar,  // idle, and what it waits for comes from another host
    kMoved,
    kDone
  };

  virtual ~Task() = default;
  // Moves what can move, without blocking. With `before_sleep` the caller sleeps if nothing does: then also that
  // counts which is otherwise looked at only now and then.
  virtual Step advance(bool before_sleep) = 0;
  // When advance() must be called again even if no bell has rung.
  virtual Deadline deadline() const = 0;
  // advance() has thrown this: fails the group, and tells who waits for the task. True when that is its end; else
  // advance() is called again. Throws nothing, and needs no memory.
  virtual bool fail(const Status& why) = 0;
};

// advance(), and fail() with what it throws. Whoever carries a task does so by this.
Task::Step take_turn(Task& task, bool before_sleep);

// Carries one task in the calling thread until it is done, or until then. Returns whether it is done.
bool carry(Task& task, DoorbellWord& bell, Deadline until = kNoDeadline);

class ProgressThread {
 public:
  explicit ProgressThread(DoorbellWord& bell) : bell_(bell) {}
  // Tasks not done are dropped. May be called on this very thread, by the last task's end.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Starts the thread with the first task. After an error the task is not carried. Throws nothing.
  Status add(std::shared_ptr<Task> task);

 private:
  struct State {  // outlives the thread's owner when a task's end destroys it
    std::mutex mutex;
    std::condition_variable changed;
    std::list<std::shared_ptr<Task>> added;  // goes to the thread without taking memory
    bool stopping = false;

    bool is_stopping() {
      const std::lock_guard lock(mutex);
      return stopping;
    }
  };
  Status start_locked();
  static void loop(const std::shared_ptr<State>& state, DoorbellWord& bell);

  DoorbellWord& bell_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
  pid_t pid_ = 0;  // of the process that started the thread: a forked child has none
};

}  // namespace braid
