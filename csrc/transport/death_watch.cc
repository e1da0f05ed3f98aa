// SPDX-License-Identifier: Apache-2.0
// A thread that polls pidfds. An exception in a caller leaves the watch as it was. If the thread has no memory, it
// tries again a moment later. Groups share one pidfd per process, so that a host with many groups does not run out
// of descriptors.
#include "transport/death_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/log.h"

namespace braid {
namespace {

constexpr int kRetry_ms = 50;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

class PidfdWatch final : public DeathWatch {
 public:
  ~PidfdWatch() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (thread_.joinable()) wake();
    }
    if (thread_.joinable()) thread_.join();
  }

  Result<Id> watch(pid_t pid, std::function<void()> died) override {
    const std::lock_guard lock(mutex_);
    if (Status started = start(); !started.ok()) return started;
    // An entry whose process has just died must not be used for a new process with the same number.
    auto process = std::find_if(processes_.begin(), processes_.end(), [pid](const Process& known) {
      return known.pid == pid && !is_readable(known.pidfd.get());
    });
    if (process == processes_.end()) {
      Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      if (pidfd.get() < 0) return system_error("cannot watch process " + std::to_string(pid), errno);
      process = processes_.insert(processes_.end(), Process{pid, std::move(pidfd), {}});
    }
    const Id id = next_id_++;
    const Status thrown = caught("watching a process", [&] { process->callbacks.emplace(id, std::move(died)); });
    wake();
    if (thrown.ok()) return id;
    if (process->callbacks.empty()) retired_.splice(retired_.end(), processes_, process);
    return thrown;
  }

  void forget(Id id) override {
    // Callbacks run under the mutex, so holding it means that none runs.
    const std::lock_guard lock(mutex_);
    for (auto process = processes_.begin(); process != processes_.end(); ++process) {
      if (process->callbacks.erase(id) == 0) continue;
      if (process->callbacks.empty()) {
        // The thread may be polling the descriptor, so it stays open until the thread wakes up.
        retired_.splice(retired_.end(), processes_, process);  // takes no memory
        wake();
      }
      return;
    }
  }

  void beat(std::atomic<uint32_t>& pulse) override {
    const std::lock_guard lock(mutex_);
    pulse_ = &pulse;
    if (thread_.joinable()) wake();
  }

 private:
  struct Process {
    pid_t pid = -1;
    Descriptor pidfd;
    std::map<Id, std::function<void()>> callbacks;
  };

  // REQUIRES: mutex_ held.
  Status start() {
    if (thread_.joinable()) return {};
    wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_.get() < 0) return system_error("cannot make an eventfd", errno);
    // Signals belong to the application's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status =
        caught("starting the thread that watches peers", [&] { thread_ = std::thread([this] { run(); }); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }

  void run() {
    std::vector<pollfd> entries;
    for (bool goes_on = true; goes_on;) {
      const Status thrown = caught("watching processes", [&] { goes_on = watch_all(entries); });
      if (thrown.ok()) continue;
      log(LogLevel::kWarning, thrown.message());
      ::poll(nullptr, 0, kRetry_ms);
    }
  }

  // Polls until something happens. Returns false if the watch ends.
  bool watch_all(std::vector<pollfd>& entries) {
    bool beats = false;
    {
      const std::lock_guard lock(mutex_);
      beats = pulse_ != nullptr;
      if (beats) pulse_->fetch_add(1, std::memory_order_relaxed);
      processes_.remove_if([](Process& process) {
        if (!is_readable(process.pidfd.get())) return false;
        for (auto& [id, died] : process.callbacks) died();
        return true;
      });
      if (stopping_) return false;
      retired_.clear();
      uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
      entries.assign(1, {wake_.get(), POLLIN, 0});
      for (const Process& process : processes_) entries.push_back({process.pidfd.get(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), beats ? static_cast<int>(kPulseTime.count()) : -1);
    return true;
  }

  std::mutex mutex_;
  std::list<Process> processes_;
  std::list<Process> retired_;
  Descriptor wake_;
  std::atomic<uint32_t>* pulse_ = nullptr;
  std::thread thread_;
  Id next_id_ = 1;
  bool stopping_ = false;
};

}  // namespace

std::unique_ptr<DeathWatch> make_death_watch() { return std::make_unique<PidfdWatch>(); }

}  // namespace braid
