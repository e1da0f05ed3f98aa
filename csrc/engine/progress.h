// SPDX-License-Identifier: Apache-2.0
// The progress thread carries the queued operations of all groups of a process. It never waits for one group while
// another can move.
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
#include "transport/neighbours.h"

namespace braid {

// An operation, or a queue of them, that the caller advances until it is done.
class Task {
 public:
  enum class Step {
    kIdle,
    kAfar,  // idle; it waits for another host
    kMoved,
    kDone
  };

  virtual ~Task() = default;
  // Moves what can move, without blocking. `before_sleep`: the caller sleeps if nothing moves. Then the task must
  // also check the things that it otherwise checks only now and then.
  virtual Step advance(bool before_sleep) = 0;
  // The latest time for the next advance(), even if no bell rings.
  virtual Deadline deadline() const = 0;
  // advance() has thrown `why`. Fails the group and tells those who wait for the task. Returns true if the task
  // has ended; if not, the caller calls advance() again. Throws nothing and allocates no memory.
  virtual bool fail(const Status& why) = 0;
};

// Calls advance(); if it throws, calls fail(). All code that carries a task uses this function.
Task::Step take_turn(Task& task, bool before_sleep);

// Carries one task in the calling thread until it is done or the deadline has passed. Returns true if it is done.
bool carry(Task& task, DoorbellWord& bell, const Neighbours& neighbours, Deadline until = kNoDeadline);

class ProgressThread {
 public:
  // Both outlive it.
  ProgressThread(DoorbellWord& bell, const Neighbours& neighbours) : bell_(bell), neighbours_(neighbours) {}
  // Drops tasks that are not done. May run on the progress thread itself, when the end of the last task destroys
  // its engine.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Hands a task to the progress thread; the first task starts it. After an error the task is not carried. Throws
  // nothing.
  Status add(std::shared_ptr<Task> task);

 private:
  struct State {  // outlives the ProgressThread if the end of a task destroys it
    std::mutex mutex;
    std::condition_variable changed;
    std::list<std::shared_ptr<Task>> added;  // a list, because splicing it allocates no memory
    bool stopping = false;

    bool is_stopping() {
      const std::lock_guard lock(mutex);
      return stopping;
    }
  };
  Status start_locked();
  static void loop(const std::shared_ptr<State>& state, DoorbellWord& bell, const Neighbours& neighbours);

  DoorbellWord& bell_;
  const Neighbours& neighbours_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
  pid_t pid_ = 0;  // the process that started the thread: a forked child has no such thread
};

}  // namespace braid
