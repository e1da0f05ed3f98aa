// SPDX-License-Identifier: Apache-2.0
// The limits on messages that wait at either end until the receiver asks. See mailbox.h.
#include <algorithm>
#include <utility>

#include "transport/mailbox.h"

namespace braid {
namespace {

// The bytes that a small message costs its receiver in addition to its size.
constexpr size_t kMessageCost = 256;
// The window of one rank for the small messages of all its peers, and the bounds of the window of one peer.
constexpr size_t kWindowsTogether = 64 * 1024 * 1024;
constexpr size_t kSmallestWindow = 256 * 1024;
constexpr size_t kLargestWindow = 4 * 1024 * 1024;
constexpr size_t kMostAnnounced = 65536;
// A small announced message costs three frames, and its receiver waits for two. Later messages come whole, in
// time.
constexpr size_t kMostSmallAnnounced = 16;

size_t cost_of(size_t bytes) { return bytes + kMessageCost; }

// True if a message that waits at its sender is small, and is not read by its receiver.
bool is_small_and_announced(const ChannelTraits& traits, size_t bytes) {
  return bytes <= traits.eager_bytes && !traits.peer_reads;
}

}  // namespace

Mailbox::Limits Mailbox::Limits::of(int ranks) {
  const auto peers = static_cast<size_t>(std::max(ranks - 1, 1));
  return {std::clamp(kWindowsTogether / peers, kSmallestWindow, kLargestWindow), kMostAnnounced,
          kMostSmallAnnounced};
}

void Mailbox::set_limits(const Limits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

// ---- the sender

bool Mailbox::enter_window(Peer& to, size_t bytes) {
  const size_t cost = cost_of(bytes);
  if (bytes > to.channel->traits().eager_bytes || to.unreported_bytes + cost > limits_.early_bytes) return false;
  to.unreported_bytes += cost;
  return true;
}

void Mailbox::send_next(Node to) {
  Peer& p = peer(to);
  while (!p.unannounced.empty() && p.lost.ok() && failure_.ok()) {
    const Tag tag = p.unannounced.begin()->second;
    const auto found = p.sends.find(tag);
    if (enter_window(p, found->second.bytes.size())) {
      writing_[found->second.request] = {to, 1};  // it is in a table at any moment
      const WaitingSend send = take_send(p, found);
      post_whole(to, tag, send.bytes, send.request);
    } else if (may_announce(p, found->second.bytes.size())) {
      announce(to, tag);
    } else {
      return;
    }
  }
}

bool Mailbox::may_announce(const Peer& to, size_t bytes) const {
  if (to.unanswered >= limits_.announced) return false;
  return !is_small_and_announced(to.channel->traits(), bytes) || to.unanswered_small < limits_.small_announced;
}

void Mailbox::announce(Node to, Tag tag) {
  Peer& p = peer(to);
  WaitingSend& send = p.sends[tag];
  if (send.turn > 0) p.unannounced.erase(std::exchange(send.turn, 0));
  ++p.unanswered;
  p.unanswered_small += is_small_and_announced(p.channel->traits(), send.bytes.size());
  if (p.channel->traits().peer_reads) {
    post_control(to, FrameKind::kOffer, tag, send.bytes.size(), {}, reinterpret_cast<uint64_t>(send.bytes.data()));
  } else {
    post_control(to, FrameKind::kRequestToSend, tag, send.bytes.size());
  }
}

Mailbox::WaitingSend Mailbox::take_send(Peer& to, std::map<Tag, WaitingSend>::iterator found) {
  const WaitingSend send = found->second;
  to.sends.erase(found);
  if (send.turn > 0) {
    to.unannounced.erase(send.turn);
  } else {
    --to.unanswered;
    to.unanswered_small -= is_small_and_announced(to.channel->traits(), send.bytes.size());
  }
  return send;
}

void Mailbox::on_want(Node from, const Tag& tag) {
  Peer& p = peer(from);
  const auto found = p.sends.find(tag);
  if (found == p.sends.end()) {
    p.wanted.insert(tag);
  } else if (found->second.turn > 0) {
    announce(from, tag);
  }
}

// ---- the receiver

bool Mailbox::keep(Peer& from, size_t bytes) {
  const size_t kept_bytes = from.kept_bytes + cost_of(bytes);
  if (kept_bytes > limits_.early_bytes) return false;
  from.kept_bytes = kept_bytes;
  return true;
}

void Mailbox::drop_early(Peer& from, std::map<Tag, EarlyFrame>::iterator found) {
  if (found->second.frame.kind == FrameKind::kMessage) {
    from.kept_bytes -= cost_of(found->second.payload.size());
  } else {
    --from.offers;
  }
  from.early.erase(found);
  came_down(from);
}

void Mailbox::handed_over(Node from, size_t bytes) {
  Peer& p = peer(from);
  p.handed_bytes += cost_of(bytes);
  if (p.handed_bytes < limits_.early_bytes / 4 || !p.lost.ok() || p.left) return;
  post_control(from, FrameKind::kWindowUpdate, {}, std::exchange(p.handed_bytes, 0));
}

void Mailbox::let_come(Node from, const Tag& tag) {
  Peer& p = peer(from);
  PostedReceive& receive = p.receives[tag];
  const ChannelTraits& traits = p.channel->traits();
  const bool ahead =
      receive.bytes.size() > traits.eager_bytes && !traits.reads_peer && p.ahead < limits_.announced;
  if (!receive.announced && !ahead) return want(from, tag);
  if (traits.has_nic) {
    ask_credit(from, tag);
    if (!receive.announced && receive.credit == Credit::kNone) want(from, tag);
  } else {
    receive.credit = receive.announced ? Credit::kGranted : Credit::kInAdvance;
    post_control(from, FrameKind::kClearToSend, tag, receive.bytes.size());
  }
  if (receive.credit == Credit::kInAdvance) ++p.ahead;
}

void Mailbox::drop_announced(Peer& from, std::map<Tag, Frame>::iterator found) {
  from.small -= found->second.message_bytes <= from.channel->traits().eager_bytes;
  from.announced.erase(found);
  came_down(from);
}

void Mailbox::filled_up(Node from) {
  Peer& p = peer(from);
  const bool is_filled = p.announced.size() + p.offers >= limits_.announced || p.small >= limits_.small_announced;
  if (p.is_full || !is_filled) return;
  p.is_full = true;
  for (const auto& [tag, receive] : p.receives) {
    if (!receive.announced && receive.credit == Credit::kNone && !receive.is_landing) want(from, tag);
  }
}

void Mailbox::came_down(Peer& from) {
  if (!from.is_full || from.announced.size() + from.offers > limits_.announced / 2) return;
  if (from.small > limits_.small_announced / 2) return;
  from.is_full = false;
  from.withheld.clear();
}

void Mailbox::want(Node from, const Tag& tag) {
  Peer& p = peer(from);
  if (!p.is_full || !p.lost.ok() || p.wants.contains(tag)) return;
  if (p.wants.size() >= limits_.announced) {
    p.withheld.insert(tag);
    return;
  }
  p.wants.insert(tag);
  post_control(from, FrameKind::kWant, tag, 0);
}

void Mailbox::has_come(Node from, const Tag& tag) {
  Peer& p = peer(from);
  if (p.wants.empty()) return;
  if (p.wants.erase(tag) == 0) {
    p.withheld.erase(tag);
    return;
  }
  post_control(from, FrameKind::kForget, tag, 0);
  if (p.withheld.empty()) return;
  want(from, p.withheld.extract(p.withheld.begin()).value());
}

// ---- limits on what the peer makes this rank keep

std::string Mailbox::excess(const Peer& from, const Frame& frame) const {
  const size_t most = limits_.announced;
  switch (frame.kind) {
    case FrameKind::kClearToSend:
      if (from.clearances.size() < most || from.sends.contains(frame.tag)) return "";
      return "it asks for more than " + std::to_string(most) + " messages before they are sent";
    case FrameKind::kWant:
      if (from.wanted.size() < most || from.sends.contains(frame.tag)) return "";
      return "it wants more than " + std::to_string(most) + " messages before they are sent";
    case FrameKind::kRequestToSend:
    case FrameKind::kOffer:
      // Twice as many: messages that this rank named by kWant come in addition.
      if (from.announced.size() + from.offers < 2 * most) return "";
      return "it has announced more than " + std::to_string(2 * most) + " messages that nobody asked for";
    case FrameKind::kPiece:
      if (from.overtaken.size() < 2 * most) return "";
      return "it has not announced what it says it has";
    case FrameKind::kWindowUpdate:
      if (frame.message_bytes <= from.unreported_bytes) return "";
      return "it reports more small messages than were sent to it";
    default: return "";
  }
}

}  // namespace braid
