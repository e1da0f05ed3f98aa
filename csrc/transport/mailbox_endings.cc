// SPDX-License-Identifier: Apache-2.0
// How a mailbox ends: finishes requests, loses peers, tells peers about failures, and reports which streams the
// peers are in.
#include <utility>

#include "base/caught.h"
#include "transport/mailbox.h"

namespace braid {
namespace {

Status was_closed() { return {Code::kAborted, "the group was shut down"}; }

}  // namespace

void Mailbox::finish(Request* request, Status status) {
  request->finish(std::move(status));
  ring(bell_);
}

Status Mailbox::without_number(Node node, Status why) {
  if (!hides_ranks_) return why;
  static_cast<void>(caught("naming a failure", [&] {
    const std::string number = rank_text(node);
    const std::string& text = why.message();
    const bool has_number = text.starts_with(number + " ") || text.starts_with(number + ":");
    if (has_number) why = {why.code(), "the peer" + text.substr(number.size()), node};
  }));
  return why;
}

void Mailbox::lost(Node node, Status why) {
  Peer& p = peer(node);
  if (!p.lost.ok()) return;
  if (p.left) why = {Code::kPeerLost, rank_text(node) + " has left the group", node};
  p.lost = without_number(node, std::move(why));
  has_lost_.store(true, std::memory_order_release);
  // A peer may leave when nobody needs it. So it is a failure only if a message now cannot come or go.
  bool needed = !p.receives.empty() || !p.sends.empty();
  for (const auto& [tag, early] : p.early) needed |= early.waiting.request != nullptr;
  for (const auto& [request, writing] : writing_) needed |= writing.to == node;
  if (needed) fail_locked(p.lost);
  // An incomplete message will never be complete. A later receive for it must see that the peer is lost.
  std::erase_if(p.early, [](const auto& early) { return !early.second.complete; });
  ring(bell_);
}

void Mailbox::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  fail_locked(why, true);
}

void Mailbox::fail_here(const Status& why) {
  const std::lock_guard lock(mutex_);
  broke(why);
}

void Mailbox::broke(const Status& why) {
  Status named = why;
  static_cast<void>(caught("naming a failure", [&] {
    named = Status(why.code(), (hides_ranks_ ? "" : rank_text(rank_) + ": ") + why.message(), rank_);
  }));
  fail_locked(named, true);
}

// Finishes every request, even without memory. Tells the peers if there is memory for it.
void Mailbox::fail_locked(const Status& why, bool everyone) {
  if (!failure_.ok() || closed_) return;
  failure_ = why;
  has_ended_.store(true, std::memory_order_release);
  std::string packed;
  const bool is_packed =
      caught("packing a reason", [&] { packed = pack_status(why).substr(0, kMostReasonBytes); }).ok();
  const std::string& words = is_packed ? packed : last_words_;
  const ConstBytes payload(reinterpret_cast<const std::byte*>(words.data()), words.size());
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (!p.channel) continue;
    if ((everyone || p.channel->connected()) && p.lost.ok() && !p.left) {
      // A peer that cannot be told sees the connection end.
      static_cast<void>(caught("telling a peer", [&] {
        post_control(static_cast<Node>(i), FrameKind::kFail, {}, words.size(), payload);
      }));
    }
  }
  drop_all(why);
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Peer& p = peers_[i];
    // Tells also peers with which no frames were exchanged: they may ask about this rank, in a receive from any
    // rank.
    if (failure_.ok() && p.channel && p.channel->connected() && p.lost.ok()) {
      static_cast<void>(
          caught("taking leave of a peer", [&] { post_control(static_cast<Node>(i), FrameKind::kLeave, {}, 0); }));
    }
  }
  closed_ = true;
  has_ended_.store(true, std::memory_order_release);
  Status why = Status::out_of_memory();
  static_cast<void>(caught("closing a group", [&] { why = was_closed(); }));
  drop_all(why);
}

void Mailbox::drop_all(const Status& why) {
  for (Peer& p : peers_) {
    if (p.channel) static_cast<void>(caught("closing a wire", [&] { p.channel->close(); }));
    for (auto& [tag, receive] : p.receives) finish(receive.request, why);
    for (auto& [tag, send] : p.sends) finish(send.request, why);
    for (auto& [tag, early] : p.early) {
      if (early.waiting.request != nullptr) finish(early.waiting.request, why);
    }
    p.receives.clear();
    p.sends.clear();
    p.early.clear();
    p.clearances.clear();
    p.announced.clear();
    p.unannounced.clear();
    p.wanted.clear();
    p.wants.clear();
    p.withheld.clear();
    p.overtaken.clear();
  }
  for (auto& [request, writing] : writing_) finish(request, why);
  writing_.clear();
  waiting_.clear();
  ring(bell_);
}

Status Mailbox::ending() const {
  const std::lock_guard lock(mutex_);
  return closed_ && failure_.ok() ? was_closed() : failure_;
}

Status Mailbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Mailbox::ask() {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || closed_) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (!p.channel || !p.lost.ok() || p.channel->peer_stream()) continue;
    p.channel->prepare();
    if (p.lost.ok()) post_control(static_cast<Node>(i), FrameKind::kAsk, {}, 0);
  }
}

std::vector<int64_t> Mailbox::peer_streams() {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> streams(peers_.size(), -1);
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    if (static_cast<Node>(i) == rank_) {
      streams[i] = static_cast<int64_t>(current_stream_);
    } else if (p.channel) {
      const auto known = p.channel->peer_stream();
      streams[i] = known ? static_cast<int64_t>(*known) : p.told_stream;
    }
  }
  return streams;
}

}  // namespace braid
