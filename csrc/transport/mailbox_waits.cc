// SPDX-License-Identifier: Apache-2.0
// Explains why messages do not come, for the error messages and notices about a wait.
#include <algorithm>

#include "transport/mailbox.h"

namespace braid {

void Mailbox::ask(const std::vector<Node>& nodes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || closed_) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (!p.channel || !p.lost.ok() || p.channel->peer_stream()) continue;
    const bool is_named = std::find(nodes.begin(), nodes.end(), static_cast<Node>(i)) != nodes.end();
    if (!is_named && !p.channel->connected()) continue;
    p.channel->prepare();
    p.told_stream = -1;  // an old answer is no longer true
    if (p.lost.ok()) post_control(static_cast<Node>(i), FrameKind::kAsk, {}, 0);
  }
}

std::string Mailbox::missing_of(const Request* request) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer& p = peers_[i];
    for (const auto& [tag, receive] : p.receives) {
      if (receive.request != request) continue;
      if (receive.received_bytes > 0 || receive.is_landing) {
        return std::to_string(receive.received_bytes) + " of " + std::to_string(receive.bytes.size()) +
               " bytes have come";
      }
      if (waiting_.contains({tag, static_cast<Node>(i)})) return "a message was announced, and waits for credit";
      if (receive.credit == Credit::kGranted)
        return "a message was announced and called for, but none of it has come";
      return "no message was announced";
    }
    for (const auto& [tag, send] : p.sends) {
      if (send.request == request) return "no matching receive has asked for the message";
    }
    for (const auto& [tag, early] : p.early) {
      if (early.waiting.request == request) return "a message has begun to come";
    }
  }
  const auto writing = writing_.find(const_cast<Request*>(request));
  if (writing == writing_.end()) return "";
  return std::to_string(writing->second.frames_left) + " frames to it are not written yet";
}

}  // namespace braid
