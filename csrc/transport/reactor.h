// SPDX-License-Identifier: Apache-2.0
// The network thread of this process: waits on file descriptors and timers and calls back.
//
// Thread safety: all functions may be called from any thread, also from inside a callback, except the destructor.
// The thread starts with the first add(), run() or at(). A forked child has no such thread: there add()
// returns kUnsupported, and the other functions do nothing.
//
// The rules of removal. Callers hold a group's mutex when they remove a descriptor, and the callback takes the
// same mutex. So remove() cannot wait for the callback. Therefore:
// 1. After remove() or cancel() no new call begins; a call that has begun may still be running.
// 2. A callback keeps the objects that it uses alive (handlers are shared_ptr). When it has the mutex, it first
//    checks a flag that says whether its object was closed. The closing thread sets this flag under the same mutex.
// 3. The owner of the mutex (a sink) must, before it destroys the mutex, set an atomic flag that callbacks read
//    before they touch the mutex. Then it calls quiesce(), and holds no lock that a callback may want.
//
// Exceptions in callbacks. Handlers and tasks catch their exceptions and turn them into a failure of a group
// (Membership::guarded) or of one stranger's connection (Greeting), because only they know who waits. If an
// exception leaves a callback nevertheless, it is logged, and the thread goes on with the next callback. The
// thread itself takes no memory between callbacks, so it cannot fail there.
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
  // Called on the reactor's thread; `events` are those of epoll (EPOLLIN, EPOLLHUP, ...).
  virtual void on_events(uint32_t events) = 0;
};

class Reactor {
 public:
  using Task = std::function<void()>;
  // Names one registration and is never used again, unlike descriptor numbers.
  using WatchId = uint64_t;
  struct Timer {
    Deadline when = kNoDeadline;
    uint64_t id = 0;  // 0: none
    auto operator<=>(const Timer&) const = default;
  };

  Reactor() = default;
  // Stops the thread. Drops tasks and timers that have not run. REQUIRES: not on the reactor's thread.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // The caller keeps `fd`, and must remove() it before it closes it.
  Result<WatchId> add(int fd, uint32_t events, std::shared_ptr<EventHandler> handler);
  Status modify(WatchId watch, uint32_t events);
  void remove(WatchId watch);

  // Runs `task` on the thread, soon, in the order of the calls. run(), at() and add() throw if there is no memory;
  // then nothing was registered.
  void run(Task task);
  Timer at(Deadline when, Task task);
  void cancel(const Timer& timer);

  // Waits until the callback that is running now, if any, has ended and its captures are destroyed. Returns at
  // once on the reactor's own thread.
  void quiesce();

  // True in a child that was forked after the thread started. Sockets shared with the parent then belong to the
  // parent alone.
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
