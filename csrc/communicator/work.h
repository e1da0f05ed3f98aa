// SPDX-License-Identifier: Apache-2.0
// A started operation, as its caller holds it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/interruptible_wait.h"
#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

class Work {
 public:
  // Describes the operation. Called only when the text is needed, because it costs time.
  using Describe = std::function<std::string()>;

  Work(Describe describe, uint64_t sequence, Clock::time_point started = Clock::now())
      : describe_(std::move(describe)), sequence_(sequence), started_(started) {}

  // "all_reduce #42 (float32, 4194304 bytes, ring)"
  std::string what() const { return describe_(); }
  uint64_t sequence() const { return sequence_; }

  bool done() const;
  // The outcome; ok while not done.
  Status status() const;
  // Sleeps until done and returns the outcome. kTimeout if the deadline comes first; the operation goes on.
  Status wait(Deadline deadline) const;
  // Calls `callback` once with the outcome: now, if done, else from the thread that finishes the operation.
  void on_done(std::function<void(const Status&)> callback);
  Clock::time_point started_at() const { return started_; }
  // From start to finish. REQUIRES: done().
  std::chrono::nanoseconds duration() const;

  // The sender of a received message, once known; kAnyNode before.
  Node source() const { return source_.load(); }
  // The ranks that had not come when the operation timed out.
  std::vector<Node> missing() const;

  // The ranks that it waits for directly. Empty in the first second and when it is done.
  std::vector<Node> awaited() const;

  // For the communicator only.
  void set_source(Node source) { source_.store(source); }
  void set_awaited(std::vector<Node> awaited);
  // Call it once. Throws nothing: an exception of a callback is logged, and the other callbacks are called.
  void finish(Status status, std::vector<Node> missing = {}, Clock::time_point finished = Clock::now());

 private:
  const Describe describe_;
  const uint64_t sequence_;
  std::atomic<Node> source_{kAnyNode};
  const Clock::time_point started_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  Status status_;
  std::vector<Node> missing_;
  std::vector<Node> awaited_;
  Clock::time_point finished_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

inline Waited wait_looking_up(const Work& work, Deadline deadline, const GiveUp& give_up) {
  if (work.done()) return Waited::kDone;
  const auto sleep = [&](Deadline until) {
    static_cast<void>(work.wait(until));
    return work.done();
  };
  return wait_in_slices(sleep, deadline, give_up);
}

}  // namespace braid
