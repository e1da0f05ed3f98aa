// SPDX-License-Identifier: Apache-2.0
#include "group/messages.h"

#include <string>
#include <utility>

#include "base/caught.h"
#include "group/message_task.h"
#include "group/refusal.h"

namespace braid {

Result<std::shared_ptr<Work>> Messages::send(std::shared_ptr<void> owner, Node to, uint32_t tag, ConstBytes bytes,
                                             milliseconds timeout) {
  return start(std::move(owner), {true, to, tag, bytes.size()}, timeout, [&](Request* request, Work*) {
    matching_.send(to, tag, bytes, request);
    return true;
  });
}

Result<std::shared_ptr<Work>> Messages::recv(std::shared_ptr<void> owner, Node from, uint32_t tag, Bytes bytes,
                                             milliseconds timeout) {
  return start(std::move(owner), {false, from, tag, bytes.size()}, timeout,
               [&](Request* request, Work* work) { return matching_.recv({from, tag, bytes, request, work}); });
}

Result<std::shared_ptr<Work>> Messages::start(std::shared_ptr<void> owner, const PointToPoint& message,
                                              milliseconds timeout,
                                              const std::function<bool(Request*, Work*)>& hand_over) {
  const Node peer = message.peer;
  const bool from_any = !message.sends && peer == kAnyNode;
  const std::string name = std::string(message.sends ? "send to " : "recv from ") +
                           (from_any ? "any rank" : "rank " + std::to_string(peer));
  if (from_any ? member_.nodes == 1 : peer < 0 || peer >= member_.nodes || peer == member_.rank) {
    return Status(Code::kInvalidArgument, name + ": rank " + std::to_string(member_.rank) + " of " +
                                              std::to_string(member_.ranks) + " can only name another rank");
  }
  std::shared_ptr<MessageTask> task;
  std::shared_ptr<Work> work;
  Status closed;
  const Status thrown = caught("starting a message", [&] {
    const std::lock_guard lock(mutex_);
    uint64_t& messages = counts_[{message.sends, peer, message.tag}];
    work = std::make_shared<Work>(
        [name, number = messages, tag = message.tag, bytes = message.bytes] {
          return name + " #" + std::to_string(number) + " (tag " + std::to_string(tag) + ", " +
                 std::to_string(bytes) + " bytes)";
        },
        messages);
    if (closed = refusal(mailbox_, member_.name, is_closed_); !closed.ok()) {
      closed = closed.within(work->what());
      return;
    }
    task = std::make_shared<MessageTask>(std::move(owner), *this, message, deadline_after(timeout_.of(timeout)),
                                         work);
    ++messages;  // from here on, the peer would wait for this message
    ++open_;
    task->set_matched(hand_over(task->request(), work.get()));
  });
  if (!closed.ok()) return closed;
  if (!thrown.ok()) {
    if (task) task->fail(thrown);
    return thrown;
  }
  if (take_turn(*task, false) == Task::Step::kDone) return work;
  if (Status bad = member_.engine->progress().add(task); !bad.ok()) {
    task->fail(bad);
    return bad;
  }
  return work;
}

bool Messages::match(uint32_t tag, const Request* request, Status* lost) {
  const std::lock_guard lock(mutex_);
  return matching_.match(tag, request, lost);
}

void Messages::forget(uint32_t tag, const Request* request) {
  const std::lock_guard lock(mutex_);
  matching_.forget(tag, request);
}

void Messages::ended() {
  const std::lock_guard lock(mutex_);
  --open_;
  ended_.notify_all();
}

void Messages::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void Messages::wait_until_ended(Deadline deadline, const GiveUp& give_up) {
  std::unique_lock lock(mutex_);
  static_cast<void>(wait_looking_up(ended_, lock, deadline, give_up, [this] { return open_ == 0; }));
}

}  // namespace braid
