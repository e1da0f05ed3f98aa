// SPDX-License-Identifier: Apache-2.0
#include "group/message_task.h"

#include <string>

#include "base/caught.h"

namespace braid {

// Without a match the request never finishes. Then the task ends with the group's failure.
std::optional<Status> MessageTask::outcome() {
  if (!matched_) {
    Status lost;
    matched_ = messages_.match(message_.tag, &request_, &lost);
    if (!matched_) {
      if (!lost.ok()) messages_.mailbox_.fail(lost);
      if (Status failed = messages_.mailbox_.failure(); !failed.ok()) return failed;
      if (!lost.ok()) return lost;
      return std::nullopt;
    }
  }
  if (!request_.done()) return std::nullopt;
  return request_.status();
}

WaitView MessageTask::view() const {
  const Node peer = message_.peer == kAnyNode ? work_->source() : message_.peer;
  const auto missing = [this](Node) -> std::string {
    if (matched_) return messages_.mailbox_.missing_of(&request_);
    return message_.peer == kAnyNode ? "no rank has announced a message of this tag"
                                     : "an earlier receive from any rank has not got its message";
  };
  if (peer == kAnyNode) return {work_, 0, {}, missing};
  return {work_, 0, {peer}, missing};
}

Task::Step MessageTask::advance(bool) {
  const bool moved = messages_.mailbox_.poll();
  std::optional<Status> status = outcome();
  if (!status) {
    const auto now = Clock::now();
    if (now >= stall_.due()) stall_.look(messages_.stalls_, now, view());
    if (now < deadline_) return moved ? Step::kMoved : Step::kIdle;
    const std::string who = message_.peer == kAnyNode ? "any rank" : rank_text(message_.peer);
    messages_.mailbox_.fail(
        {Code::kTimeout,
         rank_text(messages_.member_.rank) + " timed out in " + work_->what() + ": no matching call on " + who,
         message_.peer});
    status = outcome();
    if (!status) return Step::kMoved;
  }
  stall_.end(messages_.stalls_, work_, status->ok());
  messages_.forget(message_.tag, &request_);
  if (status->ok()) {
    const double seconds = std::chrono::duration<double>(Clock::now() - work_->started_at()).count();
    Statistics& statistics = messages_.statistics_;
    statistics.record(statistics.row(message_.sends ? "send" : "recv", "message"), message_.bytes, seconds);
  }
  work_->finish(status->ok() ? *status : status->within(work_->what() + " failed"));
  messages_.ended();  // last: after it Python may end, and the callbacks of finish() need Python
  return Step::kDone;
}

bool MessageTask::fail(const Status& why) {
  messages_.mailbox_.fail_here(why);
  messages_.forget(message_.tag, &request_);
  Status named = why;
  static_cast<void>(caught("naming a message", [&] { named = why.within(work_->what() + " failed"); }));
  work_->finish(named);
  messages_.ended();
  return true;
}

}  // namespace braid
