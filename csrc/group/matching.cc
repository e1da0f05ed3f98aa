// SPDX-License-Identifier: Apache-2.0
#include "group/matching.h"

#include <algorithm>

namespace braid {

void Matching::send(Node to, uint32_t tag, ConstBytes bytes, Request* request) {
  mailbox_.send(to, {kPointToPoint | tag, sent_[{to, tag}]++}, bytes, request);
}

bool Matching::recv(const Receive& receive) {
  const auto ahead = waiting_.find(receive.tag);
  if (receive.from != kAnyNode && ahead == waiting_.end()) {
    post(receive, receive.from);
    return true;
  }
  if (receive.from == kAnyNode) mailbox_.watch_all();
  waiting_[receive.tag].push_back(receive);
  mailbox_.need_all(true);
  Status lost;
  return match(receive.tag, receive.request, &lost);
}

bool Matching::match(uint32_t tag, const Request* request, Status* lost) {
  match_waiting(tag, lost);
  const auto found = waiting_.find(tag);
  if (found == waiting_.end()) return true;
  return std::none_of(found->second.begin(), found->second.end(),
                      [&](const Receive& receive) { return receive.request == request; });
}

void Matching::forget(uint32_t tag, const Request* request) {
  const auto found = waiting_.find(tag);
  if (found == waiting_.end()) return;
  std::erase_if(found->second, [&](const Receive& receive) { return receive.request == request; });
  if (found->second.empty()) waiting_.erase(found);
  if (waiting_.empty()) mailbox_.need_all(false);
}

void Matching::match_waiting(uint32_t tag, Status* lost) {
  const auto found = waiting_.find(tag);
  if (found == waiting_.end()) return;
  std::deque<Receive>& queue = found->second;
  while (!queue.empty()) {
    const Receive& first = queue.front();
    const Node from = first.from == kAnyNode ? source_of(tag, lost) : first.from;
    if (from == kAnyNode) return;
    post(first, from);
    queue.pop_front();
  }
  waiting_.erase(found);
  if (waiting_.empty()) mailbox_.need_all(false);
}

void Matching::post(const Receive& receive, Node from) {
  receive.work->set_source(from);
  mailbox_.recv(from, {kPointToPoint | receive.tag, received_[{from, receive.tag}]++}, receive.bytes,
                receive.request);
}

Node Matching::source_of(uint32_t tag, Status* lost) {
  int gone = 0;
  Status left;
  for (int i = 0; i < ranks_; ++i) {
    const Node node = (next_source_ + i) % ranks_;
    const Mailbox::Glance glance = mailbox_.look_for_message(node, {kPointToPoint | tag, received_[{node, tag}]});
    if (glance.arrived) {
      next_source_ = (node + 1) % ranks_;
      return node;
    }
    if (glance.lost.ok()) continue;
    ++gone;
    (glance.left ? left : *lost) = glance.lost;
  }
  if (lost->ok() && gone == ranks_ - 1) *lost = left;
  return kAnyNode;
}

}  // namespace braid
