// SPDX-License-Identifier: Apache-2.0
#include "transport/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/caught.h"

namespace braid {
namespace {

// How many ended streams are remembered, to detect a peer that enters one of them with another signature.
constexpr size_t kRememberedStreams = 64;

}  // namespace

Mailbox::Mailbox(Node rank, int ranks, DoorbellWord& bell)
    : rank_(rank),
      bell_(bell),
      last_words_(pack_status({Code::kSystem, rank_text(rank) + " ran out of memory", rank})),
      peers_(static_cast<size_t>(ranks)),
      limits_(Limits::of(ranks)) {}

Mailbox::~Mailbox() {
  close();
  // The network thread uses this mailbox, under the lock, until the first channel is destroyed.
  for (Peer& p : peers_) {
    std::unique_ptr<Channel> last;
    const std::lock_guard lock(mutex_);
    last.swap(p.channel);
  }
}

void Mailbox::attach(Node node, std::unique_ptr<Channel> channel) {
  const std::lock_guard lock(mutex_);
  peer(node).channel = std::move(channel);
  peer(node).channel->attached();
}

void Mailbox::publish_at(std::atomic<uint64_t>* word) {
  const std::lock_guard lock(mutex_);
  published_ = word;
}

// ---- starting messages

bool Mailbox::admit(Node node, Request* request) {
  if (!failure_.ok()) {
    request->finish(failure_);
  } else if (closed_) {
    request->finish({Code::kAborted, "the group was shut down"});
  } else if (node == rank_ || !peer(node).channel) {
    request->finish({Code::kInternal, "no wire to " + rank_text(node), node});
  } else {
    start_looking();
    return true;
  }
  return false;
}

void Mailbox::send(Node to, Tag tag, ConstBytes bytes, Request* request) {
  const std::lock_guard lock(mutex_);
  request->start();
  const Status thrown = caught("starting a send", [&] { start_send(to, tag, bytes, request); });
  if (thrown.ok()) return;
  broke(thrown);
  if (!request->done()) request->finish(failure_.ok() ? thrown : failure_);  // it was in no table yet
}

void Mailbox::start_send(Node to, Tag tag, ConstBytes bytes, Request* request) {
  if (!admit(to, request)) return;
  Peer& p = peer(to);
  if (!p.lost.ok()) {
    request->finish(p.lost);
    fail_locked(p.lost);
    return;
  }
  p.channel->prepare();
  if (!p.lost.ok() || !failure_.ok()) {
    request->finish(p.lost.ok() ? failure_ : p.lost);
    if (failure_.ok()) fail_locked(p.lost);  // nobody needed the peer until now
    return;
  }
  const bool wanted = !p.wanted.empty() && p.wanted.erase(tag) > 0;
  if (enter_window(p, bytes.size())) {
    post_whole(to, tag, bytes, request);
    return;
  }
  if (const auto ready = p.clearances.find(tag); ready != p.clearances.end()) {
    const Frame frame = ready->second;
    p.clearances.erase(ready);
    if (fits(to, frame, bytes.size())) {
      post_pieces(to, tag, bytes, request, false);
    } else {
      request->finish(failure_);
    }
    return;
  }
  const uint64_t turn = ++p.turns;
  p.sends[tag] = {bytes, request, turn};
  p.unannounced.emplace(turn, tag);
  if (wanted || may_announce(p, bytes.size())) announce(to, tag);
}

void Mailbox::pace(Node to, double bytes_per_s) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok() && !closed_ && peer(to).channel) peer(to).channel->pace(bytes_per_s);
}

void Mailbox::watch_all() {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || closed_) return;
  for (Peer& p : peers_) {
    if (p.channel && p.lost.ok()) p.channel->prepare();
  }
}

Mailbox::Glance Mailbox::look_for_message(Node from, const Tag& tag) {
  const std::lock_guard lock(mutex_);
  if (closed_) return {false, {Code::kAborted, "the group was shut down"}, false};
  const Peer& p = peer(from);
  const bool arrived = p.early.contains(tag) || p.announced.contains(tag);
  if (!arrived && failure_.ok() && !is_collective(tag)) want(from, tag);
  return {arrived, p.lost, p.left};
}

void Mailbox::recv(Node from, Tag tag, Bytes bytes, Request* request) {
  const std::lock_guard lock(mutex_);
  request->start();
  const Status thrown = caught("starting a receive", [&] { start_recv(from, tag, bytes, request); });
  if (thrown.ok()) return;
  broke(thrown);
  if (!request->done()) request->finish(failure_.ok() ? thrown : failure_);
}

void Mailbox::start_recv(Node from, Tag tag, Bytes bytes, Request* request) {
  if (!admit(from, request)) return;
  Peer& p = peer(from);
  if (const auto found = p.early.find(tag); found != p.early.end()) {
    EarlyFrame& early = found->second;
    if (!fits(from, early.frame, bytes.size())) {
      request->finish(failure_);
      return;
    }
    if (early.frame.kind == FrameKind::kOffer) {
      const Frame offer = early.frame;
      drop_early(p, found);
      take_offer(from, offer, bytes, request);
    } else if (early.complete) {
      if (!bytes.empty()) std::memcpy(bytes.data(), early.payload.data(), bytes.size());
      drop_early(p, found);
      handed_over(from, bytes.size());
      request->finish({});
    } else {
      early.waiting = {bytes, request};
    }
    return;
  }
  if (!p.lost.ok()) {
    request->finish(p.lost);
    fail_locked(p.lost);
    return;
  }
  bool announced = false;
  if (const auto found = p.announced.find(tag); found != p.announced.end()) {
    const Frame announcement = found->second;
    drop_announced(p, found);
    announced = true;
    if (!fits(from, announcement, bytes.size())) {
      request->finish(failure_);
      return;
    }
  }
  PostedReceive receive{bytes, request};
  receive.announced = announced;
  p.receives[tag] = receive;
  p.channel->prepare();
  if (p.receives.empty()) return;  // prepare() found the peer gone
  const ChannelTraits& traits = p.channel->traits();
  const bool comes_unasked = bytes.size() <= traits.eager_bytes || traits.reads_peer;
  if (announced || p.is_full || !comes_unasked) let_come(from, tag);
}

void Mailbox::begin(uint64_t stream, const Signature& signature) {
  const std::lock_guard lock(mutex_);
  streams_[stream] = signature;
  current_stream_ = stream;
  if (published_ != nullptr) published_->store(stream, std::memory_order_release);
  for (size_t node = 0; node < peers_.size(); ++node) {
    Peer& p = peers_[node];
    const Tag first{stream, 0};
    if (const auto e = p.early.lower_bound(first); e != p.early.end() && e->first.stream == stream) {
      if (!agrees(static_cast<Node>(node), e->second.frame)) return;
    }
    if (const auto r = p.clearances.lower_bound(first); r != p.clearances.end() && r->first.stream == stream) {
      if (!agrees(static_cast<Node>(node), r->second)) return;
    }
    if (const auto a = p.announced.lower_bound(first); a != p.announced.end() && a->first.stream == stream) {
      if (!agrees(static_cast<Node>(node), a->second)) return;
    }
  }
}

void Mailbox::end_stream(uint64_t stream) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  ended_.push_back({stream, found->second});
  if (ended_.size() > kRememberedStreams) ended_.pop_front();
  streams_.erase(found);
}

bool Mailbox::poll() {
  const std::lock_guard lock(mutex_);
  bool moved = true;
  const Status thrown = caught("moving messages", [&] { moved = poll_channels(); });
  if (!thrown.ok()) broke(thrown);
  return moved;
}

bool Mailbox::poll_channels() {
  bool moved = false;
  for (Peer& p : peers_) {
    if (!failure_.ok() || closed_) break;
    if (p.channel && p.lost.ok()) moved |= p.channel->poll();
    if (p.unreadable.ok() || !failure_.ok() || closed_) continue;
    if (p.lost.ok()) p.channel->poll();
    fail_locked(p.unreadable);  // does nothing if the group has failed meanwhile
    moved = true;
  }
  return moved;
}

// ---- frames out

Signature Mailbox::signature_of(const Tag& tag) const {
  const auto found = streams_.find(tag.stream);
  return found == streams_.end() ? Signature{} : found->second;
}

void Mailbox::post_control(Node to, FrameKind kind, Tag tag, uint64_t message_bytes, ConstBytes payload,
                           uint64_t offset) {
  Frame frame;
  frame.kind = kind;
  frame.payload_bytes = static_cast<uint32_t>(payload.size());
  frame.tag = tag;
  frame.message_bytes = message_bytes;
  frame.offset = offset;
  frame.signature = signature_of(tag);
  peer(to).channel->post(frame, payload, nullptr);
}

void Mailbox::post_whole(Node to, Tag tag, ConstBytes bytes, Request* request) {
  Frame frame;
  frame.kind = FrameKind::kMessage;
  frame.payload_bytes = static_cast<uint32_t>(bytes.size());
  frame.tag = tag;
  frame.message_bytes = bytes.size();
  frame.signature = signature_of(tag);
  writing_[request] = {to, 1};
  peer(to).channel->post(frame, bytes, request);
}

void Mailbox::post_pieces(Node to, Tag tag, ConstBytes bytes, Request* request, bool was_announced) {
  Peer& p = peer(to);
  const size_t piece_bytes = p.channel->traits().piece_bytes;
  const size_t pieces = std::max((bytes.size() + piece_bytes - 1) / piece_bytes, size_t{1});
  writing_[request] = {to, pieces};
  for (size_t i = 0; i < pieces; ++i) {
    if (!p.lost.ok() || !failure_.ok()) return;  // the request was finished with that status
    const size_t offset = i * piece_bytes;
    const ConstBytes piece = bytes.subspan(offset, std::min(piece_bytes, bytes.size() - offset));
    Frame frame;
    frame.kind = FrameKind::kPiece;
    frame.was_announced = was_announced;
    frame.payload_bytes = static_cast<uint32_t>(piece.size());
    frame.tag = tag;
    frame.message_bytes = bytes.size();
    frame.offset = offset;
    frame.signature = signature_of(tag);
    p.channel->post(frame, piece, request);
  }
}

void Mailbox::written(Request* request) {
  const auto found = writing_.find(request);
  if (found == writing_.end() || --found->second.frames_left > 0) return;
  writing_.erase(found);
  finish(request, {});
}

void Mailbox::take_offer(Node from, const Frame& offer, Bytes into, Request* request) {
  Channel& channel = *peer(from).channel;
  const Status pulled = into.empty() ? Status() : channel.pull(offer.offset, into);
  if (!pulled.ok()) {
    // A peer that fails takes its memory away, and sends the reason right before. The reason may come after this
    // offer.
    peer(from).unreadable = without_number(from, pulled);
    peer(from).receives[offer.tag] = {into, request};
    writing_.erase(request);
    ring(bell_);
    return;
  }
  // The receive ends when this frame is out, not before. Afterwards this rank may stop polling, and then the
  // sender would wait for the frame.
  Frame taken;
  taken.kind = FrameKind::kTaken;
  taken.tag = offer.tag;
  taken.message_bytes = offer.message_bytes;
  taken.signature = signature_of(offer.tag);
  writing_[request] = {from, 1};
  channel.post(taken, {}, request);
}

}  // namespace braid
