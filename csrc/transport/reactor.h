// SPDX-License-Identifier: Apache-2.0
// The network thread of this process: waits on file descriptors and timers and calls back.
//
// Thread safety: all functions may be called from any thread, also from inside a callback, except the destructor.
// The thread starts with the first add(), run() or at(). In a forked child, which has no such thread, every
// function does nothing.
//
// The rules of removal. Callers hold a group's mutex when they remove a descriptor, and the callback takes the
// same mutex, so remove() cannot wait for it. Therefore:
// 1. After remove() or cancel() no new call begins; one that has begun may still be running.
// 2. A callback keeps what it uses alive (handlers are shared_ptr) and, once it has the mutex, first checks
//    whether it was closed meanwhile. Who closes sets that flag under the same mutex.
// 3. Who is about to destroy the mutex itself (a sink) sets an atomic flag that callbacks read before they touch
//    the mutex, and then calls quiesce() without holding anything a callback may want.
//
// What callbacks throw. Handlers and tasks keep their exceptions in, and turn them into the failure of what they
// belong to: a group (Membership::guarded), or one stranger's connection (Greeting). They alone know who waits. What
// comes out of a callback all the same is logged, and the thread goes on to the next one. The thread itself takes no
// memory between callbacks, so it has nothing to fail by.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // On the reactor's thread; `events` as epoll gives them (EPOLLIN, EPOLLHUP, ...).
  virtual void on_events(uint32_t events) = 0;
};

class Reactor {
 public:
  using Task = std::function<void()>;
  // Names one registration for ever: a descriptor number that the system gives out again cannot be mistaken.
  using WatchId = uint64_t;
  struct Timer {
    Deadline when = kNoDeadline;
    uint64_t id = 0;  // 0: none
    auto operator<=>(const Timer&) const = default;
  };

  Reactor() = default;
  // Stops the thread. What was not yet due or not yet run is dropped. REQUIRES: not on the reactor's thread.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // `fd` stays the caller's, who must remove() it before closing it.
  Result<WatchId> add(int fd, uint32_t events, std::shared_ptr<EventHandler> handler);
  Status modify(WatchId watch, uint32_t events);
  void remove(WatchId watch);

  // Runs `task` on the thread, soon, in the order of the calls. Like at() and add() this throws for lack of memory,
  // and then nothing was registered.
  void run(Task task);
  Timer at(Deadline when, Task task);
  void cancel(const Timer& timer);

  // Returns when the callback that is running now, if any, has ended and its captures are destroyed. At once on
  // the reactor's own thread.
  void quiesce();

  // True in a child forked after the thread was started. What is shared with the parent, say a socket, is its alone.
  bool forked() const;

 private:
  struct Watch {
    int fd = -1;
    std::shared_ptr<EventHandler> handler;
  };

  Status start_locked();
  void close_descriptors();
  void wake();  // REQUIRES: started
  void loop();
  int milliseconds_to_next_timer();
  void run_tasks();
  void run_due_timers();
  void dispatch(WatchId watch, uint32_t events);
  template <class Callback>
  void call(std::unique_lock<std::mutex>& lock, Callback callback);

  std::mutex mutex_;  // taken after any group's mutex; never held during a callback
  std::condition_variable ended_call_;
  std::atomic<pid_t> pid_{0};  // of the process that started the thread
  std::thread thread_;
  int epoll_ = -1;
  int wake_ = -1;
  bool stopping_ = false;
  uint64_t last_id_ = 0;
  uint64_t calls_begun_ = 0;
  uint64_t calls_ended_ = 0;
  int quiescing_ = 0;
  std::unordered_map<WatchId, Watch> watches_;
  std::vector<Task> tasks_;
  std::map<Timer, Task> timers_;
};

}  // namespace braid
