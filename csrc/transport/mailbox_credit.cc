// SPDX-License-Identifier: Apache-2.0
// Credit: how many bytes may be under way to this rank's NIC. See mailbox.h.
#include "transport/mailbox.h"

namespace braid {
namespace {

// The credit that is given in advance, for messages that are not announced yet.
constexpr size_t kAdvanceBytes = 256 * 1024;

}  // namespace

void Mailbox::set_credit(size_t bytes) {
  const std::lock_guard lock(mutex_);
  credit_bytes_ = bytes;
  grant_waiting();
}

void Mailbox::ask_credit(Node from, const Tag& tag) {
  PostedReceive& receive = peer(from).receives[tag];
  if (receive.announced) {
    waiting_.emplace(tag, from);
    grant_waiting();
    return;
  }
  if (advanced_bytes_ > 0 && advanced_bytes_ + receive.bytes.size() > kAdvanceBytes) return;
  receive.credit = Credit::kInAdvance;
  advanced_bytes_ += receive.bytes.size();
  post_control(from, FrameKind::kClearToSend, tag, receive.bytes.size());
}

void Mailbox::grant_waiting() {
  while (!waiting_.empty()) {
    const auto [tag, from] = *waiting_.begin();
    PostedReceive& receive = peer(from).receives[tag];
    const size_t bytes = receive.bytes.size();
    // Only half of the message must fit. The parts of a vector differ by a cache line, and two parts of half the
    // credit should go together.
    if (granted_bytes_ > 0 && granted_bytes_ + bytes / 2 > credit_bytes_) return;
    waiting_.erase(waiting_.begin());
    receive.credit = Credit::kGranted;
    granted_bytes_ += bytes;
    post_control(from, FrameKind::kClearToSend, tag, bytes);
  }
}

void Mailbox::give_back(Node from, const PostedReceive& receive) {
  Peer& p = peer(from);
  if (receive.credit == Credit::kInAdvance) --p.ahead;
  if (!p.channel->traits().has_nic) return;
  if (receive.credit == Credit::kInAdvance) advanced_bytes_ -= receive.bytes.size();
  if (receive.credit != Credit::kGranted) return;
  granted_bytes_ -= receive.bytes.size();
  grant_waiting();
}

bool Mailbox::awaits(size_t enough) const {
  size_t bytes = 0;
  for (const Peer& p : peers_) {
    if (!p.channel || !p.channel->traits().has_nic) continue;
    for (const auto& [tag, receive] : p.receives) {
      bytes += receive.bytes.size() - receive.received_bytes;
      if (bytes >= enough) return true;
    }
  }
  return false;
}

}  // namespace braid
