// SPDX-License-Identifier: Apache-2.0
// The queue of a group's collectives, as the progress thread sees it.
#pragma once

#include <memory>
#include <utility>

#include "engine/progress.h"

namespace braid {

// A group implements it. Thread safe.
class Queue {
 public:
  // Both are read under one lock: a caller that hands its operation over puts it before the head.
  struct Turn {
    std::shared_ptr<Task> head;  // null if the queue is empty; then the progress thread must drop its task
    bool must_wait = false;      // true while a caller carries its operation
  };
  virtual Turn turn() = 0;
  virtual void pop_head() = 0;
  // Fails the group. Throws nothing.
  virtual void fail(const Status& why) = 0;

 protected:
  ~Queue() = default;
};

// Advances the head of the queue.
class QueueTask final : public Task {
 public:
  explicit QueueTask(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return deadline_; }
  bool fail(const Status& why) override;

 private:
  const std::shared_ptr<Queue> queue_;  // keeps the group
  Deadline deadline_ = kNoDeadline;
};

}  // namespace braid
