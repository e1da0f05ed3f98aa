// SPDX-License-Identifier: Apache-2.0
#include "c10d/callbacks.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

constexpr std::chrono::seconds kIdleTime{10};

class CallbackThreads {
 public:
  void add(std::function<void()> job) {
    std::unique_lock<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size()) {
      job_added_.notify_one();
      return;
    }
    const Status started = caught("starting a callback thread", [this] {
      std::thread thread([this] { run(); });
      ++threads_;
      ::pthread_setname_np(thread.native_handle(), "braid-callback");
      thread.detach();  // this object is never destroyed
    });
    if (started.ok() || threads_ > 0) return;  // a busy thread takes the job when its own has ended
    log(LogLevel::kWarning, started.message() + "; what is attached to an operation runs on its thread");
    job = std::move(jobs_.back());
    jobs_.pop_back();
    lock.unlock();
    carry_out(job);
  }

  void wait_until_none_is_left(Deadline deadline, const GiveUp& give_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    static_cast<void>(
        wait_looking_up(job_ended_, lock, deadline, give_up, [this] { return jobs_.empty() && running_ == 0; }));
  }

 private:
  // Logs an exception of the job; the thread goes on.
  static void carry_out(std::function<void()>& job) {
    const Status thrown = caught("running what is attached to an operation", [&] {
      const std::function<void()> last = std::move(job);  // its destruction may need the GIL
      last();
    });
    if (!thrown.ok()) log(LogLevel::kWarning, thrown.message());
  }

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      ++idle_;
      const bool work = job_added_.wait_for(lock, kIdleTime, [this] { return !jobs_.empty(); });
      --idle_;
      if (!work) {
        --threads_;
        return;
      }
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
      lock.unlock();
      carry_out(job);
      lock.lock();
      --running_;
      job_ended_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable job_added_;
  std::condition_variable job_ended_;
  std::deque<std::function<void()>> jobs_;
  size_t idle_ = 0;     // threads that wait for a job
  size_t running_ = 0;  // threads that run a job
  size_t threads_ = 0;
};

}  // namespace

void run_callback(std::function<void()> job) { of_this_process<CallbackThreads>().add(std::move(job)); }

void wait_for_callbacks(Deadline deadline, const GiveUp& give_up) {
  of_this_process<CallbackThreads>().wait_until_none_is_left(deadline, give_up);
}

}  // namespace braid::adapter
