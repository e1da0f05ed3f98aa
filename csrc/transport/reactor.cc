// SPDX-License-Identifier: Apache-2.0
#include "transport/reactor.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {
namespace {

constexpr uint64_t kWakeId = 0;  // of the event descriptor; watches count from 1

}  // namespace

// ---- the thread

bool Reactor::forked() const { return pid_ != 0 && pid_ != ::getpid(); }

Status Reactor::start_locked() {
  if (thread_.joinable()) return {};
  pid_ = ::getpid();
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{EPOLLIN, {.u64 = kWakeId}};
  if (epoll_ < 0 || wake_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    const Status status = system_error("cannot set up the network thread", errno);
    close_descriptors();
    return status;
  }
  // The threads of the application handle signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status = caught("starting the network thread", [&] {
    thread_ = std::thread([this] { loop(); });
    pthread_setname_np(thread_.native_handle(), "braid-net");
  });
  if (!status.ok()) close_descriptors();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void Reactor::close_descriptors() {
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
  epoll_ = wake_ = -1;
}

Reactor::~Reactor() {
  if (forked()) {
    if (thread_.joinable())
      thread_.detach();  // the thread does not exist here, and the mutex may be locked for ever
  } else {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (thread_.joinable()) wake();
    }
    if (thread_.joinable()) thread_.join();
  }
  close_descriptors();
}

void Reactor::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);  // full means it is awake already
}

void Reactor::loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    run_tasks();
    run_due_timers();
    const int timeout_ms = milliseconds_to_next_timer();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 != kWakeId) {
        dispatch(event.data.u64, event.events);
        continue;
      }
      uint64_t rings;
      [[maybe_unused]] const auto got = ::read(wake_, &rings, sizeof rings);
    }
  }
}

// ---- descriptors

Result<Reactor::WatchId> Reactor::add(int fd, uint32_t events, std::shared_ptr<EventHandler> handler) {
  if (forked()) return Status(Code::kUnsupported, "the network thread stayed in the parent process");
  const std::lock_guard lock(mutex_);
  if (const Status started = start_locked(); !started.ok()) return started;
  const WatchId id = ++last_id_;
  watches_[id] = {fd, std::move(handler)};  // first: epoll would report an event without a handler for ever
  epoll_event event{events, {.u64 = id}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return id;
  const int refused = errno;
  watches_.erase(id);
  return system_error("cannot watch a socket", refused);
}

Status Reactor::modify(WatchId watch, uint32_t events) {
  if (forked()) return {};
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return {Code::kInternal, "the socket is not watched"};
  epoll_event event{events, {.u64 = watch}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, found->second.fd, &event) == 0) return {};
  return system_error("cannot watch a socket", errno);
}

void Reactor::remove(WatchId watch) {
  if (forked()) return;
  std::shared_ptr<EventHandler> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.fd, nullptr);
  last = std::move(found->second.handler);
  watches_.erase(found);
}

void Reactor::dispatch(WatchId watch, uint32_t events) {
  std::unique_lock lock(mutex_);
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;  // removed after epoll_wait had returned
  call(lock, [handler = found->second.handler, events] { handler->on_events(events); });
}

// ---- tasks and timers

void Reactor::run(Task task) {
  if (forked()) return;
  Status started;
  {
    const std::lock_guard lock(mutex_);
    started = start_locked();
    tasks_.push_back(std::move(task));
    // The thread itself looks for tasks before it sleeps.
    if (started.ok() && thread_.get_id() != std::this_thread::get_id()) wake();
  }
  if (!started.ok()) log(LogLevel::kWarning, started.message());
}

Reactor::Timer Reactor::at(Deadline when, Task task) {
  if (forked()) return {};
  Status started;
  Timer timer;
  {
    const std::lock_guard lock(mutex_);
    started = start_locked();
    timer = {when, ++last_id_};
    timers_.emplace(timer, std::move(task));
    if (started.ok() && thread_.get_id() != std::this_thread::get_id()) wake();
  }
  if (!started.ok()) log(LogLevel::kWarning, started.message());
  return timer;
}

void Reactor::cancel(const Timer& timer) {
  if (forked() || timer.id == 0) return;
  Task last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = timers_.find(timer);
  if (found == timers_.end()) return;
  last = std::move(found->second);
  timers_.erase(found);
}

int Reactor::milliseconds_to_next_timer() {
  const std::lock_guard lock(mutex_);
  if (!tasks_.empty()) return 0;
  if (timers_.empty() || timers_.begin()->first.when == kNoDeadline) return -1;
  const auto left = timers_.begin()->first.when - Clock::now();
  const int64_t left_ms = std::chrono::ceil<milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 3'600'000));
}

void Reactor::run_tasks() {
  std::vector<Task> tasks;  // those left when stopping are destroyed after the lock is released
  std::unique_lock lock(mutex_);
  tasks.swap(tasks_);
  for (Task& task : tasks) {
    if (stopping_) return;
    call(lock, std::move(task));
    lock.lock();
  }
}

void Reactor::run_due_timers() {
  std::unique_lock lock(mutex_);
  const Deadline now = Clock::now();
  while (!stopping_ && !timers_.empty() && timers_.begin()->first.when <= now) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    call(lock, std::move(task));
    lock.lock();
  }
}

// ---- calls

// Runs the callback, and destroys it, without the lock; the lock is released when this returns.
template <class Callback>
void Reactor::call(std::unique_lock<std::mutex>& lock, Callback callback) {
  ++calls_begun_;
  lock.unlock();
  const Status broke = caught("running a callback of the network thread", [&callback] {
    Callback last = std::move(callback);
    last();
  });
  if (!broke.ok()) log(LogLevel::kWarning, broke.message());
  lock.lock();
  ++calls_ended_;
  if (quiescing_ > 0) ended_call_.notify_all();
  lock.unlock();
}

void Reactor::quiesce() {
  if (forked()) return;
  std::unique_lock lock(mutex_);
  if (thread_.get_id() == std::this_thread::get_id()) return;
  ++quiescing_;
  ended_call_.wait(lock, [this, last = calls_begun_] { return calls_ended_ >= last; });
  --quiescing_;
}

}  // namespace braid
