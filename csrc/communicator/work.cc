// SPDX-License-Identifier: Apache-2.0
#include "communicator/work.h"

#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {

bool Work::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

Status Work::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Status Work::wait(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  if (deadline == kNoDeadline) {
    changed_.wait(lock, [this] { return done_; });
  } else if (!changed_.wait_until(lock, deadline, [this] { return done_; })) {
    return {Code::kTimeout, what() + " is not done yet"};
  }
  return status_;
}

void Work::on_done(std::function<void(const Status&)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(status_);  // without the lock: the status does not change once done
}

std::vector<Node> Work::missing() const {
  const std::lock_guard lock(mutex_);
  return missing_;
}

std::vector<Node> Work::awaited() const {
  const std::lock_guard lock(mutex_);
  return awaited_;
}

void Work::set_awaited(std::vector<Node> awaited) {
  const std::lock_guard lock(mutex_);
  if (!done_) awaited_ = std::move(awaited);
}

std::chrono::nanoseconds Work::duration() const {
  const std::lock_guard lock(mutex_);
  return finished_ - started_;
}

void Work::finish(Status status, std::vector<Node> missing, Clock::time_point finished) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    status_ = std::move(status);
    missing_ = std::move(missing);
    awaited_.clear();
    finished_ = finished;
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  for (const auto& callback : callbacks) {
    const Status thrown = caught("telling that an operation has ended", [&] { callback(status_); });
    if (!thrown.ok()) log(LogLevel::kWarning, thrown.message());
  }
}

}  // namespace braid
