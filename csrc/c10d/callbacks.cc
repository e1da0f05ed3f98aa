// SPDX-License-Identifier: Apache-2.0
#include "c10d/callbacks.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "communicator/process.h"

namespace braid::adapter {
namespace {

constexpr std::chrono::seconds kIdleTime{10};

class CallbackThreads {
 public:
  void add(std::function<void()> job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size()) {
      job_added_.notify_one();
      return;
    }
    std::thread thread([this] { run(); });
    ::pthread_setname_np(thread.native_handle(), "braid-callback");
    thread.detach();  // this object is never destroyed
  }

  void wait_until_none_is_left(Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    job_ended_.wait_until(lock, deadline, [this] { return jobs_.empty() && running_ == 0; });
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      ++idle_;
      const bool work = job_added_.wait_for(lock, kIdleTime, [this] { return !jobs_.empty(); });
      --idle_;
      if (!work) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
      lock.unlock();
      job();
      job = nullptr;  // what it holds may need the GIL to go
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
  size_t running_ = 0;  // threads that carry one out
};

}  // namespace

void run_callback(std::function<void()> job) { of_this_process<CallbackThreads>().add(std::move(job)); }

void wait_for_callbacks(Deadline deadline) {
  of_this_process<CallbackThreads>().wait_until_none_is_left(deadline);
}

}  // namespace braid::adapter
