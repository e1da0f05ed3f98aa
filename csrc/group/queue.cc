// SPDX-License-Identifier: Apache-2.0
#include "group/queue.h"

namespace braid {

Task::Step QueueTask::advance(bool before_sleep) {
  const auto [head, must_wait] = queue_->turn();
  if (!head) return Step::kDone;
  if (must_wait) {
    deadline_ = kNoDeadline;
    return Step::kIdle;
  }
  const Step step = take_turn(*head, before_sleep);
  deadline_ = head->deadline();
  if (step != Step::kDone) return step;
  queue_->pop_head();
  return Step::kMoved;
}

// Returns false: the queued operations must still be ended.
bool QueueTask::fail(const Status& why) {
  queue_->fail(why);
  return false;
}

}  // namespace braid
