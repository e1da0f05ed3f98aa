// SPDX-License-Identifier: Apache-2.0
// The receiving half of a mailbox: what each kind of frame does when it arrives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/mailbox.h"

namespace braid {

Result<Bytes> Mailbox::landing(Node from, const Frame& frame) {
  Peer& p = peer(from);
  const size_t size = frame.payload_bytes;
  switch (frame.kind) {
    case FrameKind::kMessage: {
      if (size != frame.message_bytes || size > p.channel->traits().eager_bytes || p.early.contains(frame.tag))
        break;
      if (!agrees(from, frame)) return failure_;
      if (const auto posted = p.receives.find(frame.tag); posted != p.receives.end()) {
        if (!fits(from, frame, posted->second.bytes.size())) return failure_;
        if (std::exchange(posted->second.is_landing, true)) break;  // twice
        return posted->second.bytes;
      }
      EarlyFrame& early = p.early[frame.tag];
      early.frame = frame;
      early.payload.resize(size);
      return Bytes(early.payload);
    }
    case FrameKind::kPiece: {
      const auto posted = p.receives.find(frame.tag);
      if (posted == p.receives.end()) break;
      if (p.channel->traits().has_card && posted->second.credit == Credit::kNone) break;  // nobody asked for it
      const Bytes whole = posted->second.bytes;
      if (frame.offset > whole.size() || size > whole.size() - frame.offset) break;
      // Once all has come nothing must be on its way into memory that is the user's again.
      if (posted->second.is_landing || size > whole.size() - posted->second.landing_bytes) break;
      posted->second.landing_bytes += size;
      return whole.subspan(frame.offset, size);
    }
    case FrameKind::kFail:
      if (size > kMostReasonBytes) break;
      p.control.resize(size);
      return Bytes(reinterpret_cast<std::byte*>(p.control.data()), size);
    case FrameKind::kReady:
    case FrameKind::kOffer:
    case FrameKind::kTaken:
    case FrameKind::kLeave:
    case FrameKind::kAsk:
    case FrameKind::kTell:
    case FrameKind::kAnnounce:
      if (size == 0) return Bytes();
      break;
  }
  return Status(Code::kPeerLost,
                rank_text(from) + " broke the protocol (frame kind " + std::to_string(int(frame.kind)) + ", " +
                    std::to_string(size) + " bytes)",
                from);
}

void Mailbox::arrived(Node from, const Frame& frame) {
  Peer& p = peer(from);
  switch (frame.kind) {
    case FrameKind::kMessage: on_message(from, frame); break;
    case FrameKind::kReady: on_ready(from, frame); break;
    case FrameKind::kPiece: on_piece(from, frame); break;
    case FrameKind::kOffer: on_offer(from, frame); break;
    case FrameKind::kTaken:
      if (const auto found = p.sends.find(frame.tag); found != p.sends.end()) {
        Request* request = found->second.request;
        p.sends.erase(found);
        finish(request, {});
      }
      break;
    case FrameKind::kFail: fail_locked(unpack_status(p.control)); break;
    case FrameKind::kLeave: p.left = true; break;
    case FrameKind::kAsk: post_control(from, FrameKind::kTell, {current_stream_, 0}, 0); break;
    case FrameKind::kTell:
      p.told_stream = static_cast<int64_t>(frame.tag.stream);
      ring(bell_);
      break;
    case FrameKind::kAnnounce: on_announce(from, frame); break;
  }
}

void Mailbox::on_message(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (const auto found = p.early.find(frame.tag); found != p.early.end()) {
    EarlyFrame& early = found->second;
    early.complete = true;
    if (early.waiting.request == nullptr) return kept(frame.tag);
    const PostedReceive waiting = early.waiting;
    if (!early.payload.empty()) std::memcpy(waiting.bytes.data(), early.payload.data(), early.payload.size());
    p.early.erase(found);
    finish(waiting.request, {});
    return;
  }
  const auto posted = p.receives.find(frame.tag);
  if (posted == p.receives.end()) return;  // failed meanwhile
  Request* request = posted->second.request;
  p.receives.erase(posted);
  finish(request, {});
}

void Mailbox::on_ready(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (!agrees(from, frame)) return;
  const auto found = p.sends.find(frame.tag);
  if (found == p.sends.end()) {
    p.readies[frame.tag] = frame;
    return;
  }
  const WaitingSend waiting = found->second;
  if (!fits(from, frame, waiting.bytes.size())) return;
  p.sends.erase(found);
  post_pieces(from, frame.tag, waiting.bytes, waiting.request);
}

void Mailbox::on_piece(Node from, const Frame& frame) {
  Peer& p = peer(from);
  const auto posted = p.receives.find(frame.tag);
  if (posted == p.receives.end()) return;  // failed meanwhile
  posted->second.received_bytes += frame.payload_bytes;
  if (posted->second.received_bytes < posted->second.bytes.size()) return;
  const PostedReceive receive = posted->second;
  p.receives.erase(posted);
  finish(receive.request, {});
  give_back(receive);
}

void Mailbox::on_offer(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (!agrees(from, frame)) return;
  const auto posted = p.receives.find(frame.tag);
  if (posted == p.receives.end()) {
    p.early[frame.tag] = {frame, {}, true, {}};
    kept(frame.tag);
    return;
  }
  const PostedReceive receive = posted->second;
  if (!fits(from, frame, receive.bytes.size())) return;
  p.receives.erase(posted);
  take_offer(from, frame, receive.bytes, receive.request);
}

// Kept, so that a receive of another size is told so: it might be one that sends no kReady, and both would wait.
void Mailbox::on_announce(Node from, const Frame& frame) {
  Peer& p = peer(from);
  // The pieces, over other connections, may have been faster than their announcement.
  const auto over = [&](const Ended& e) { return e.stream == frame.tag.stream && e.intent == frame.intent; };
  if (std::any_of(ended_.begin(), ended_.end(), over)) return;
  if (!agrees(from, frame)) return;
  if (const auto posted = p.receives.find(frame.tag); posted != p.receives.end()) {
    const ChannelTraits& traits = p.channel->traits();
    const bool large = frame.message_bytes > traits.eager_bytes;
    if (!fits(from, frame, posted->second.bytes.size()) || !large || !traits.has_card) return;
    if (posted->second.credit == Credit::kNone) ask_credit(from, frame.tag, true);
  } else {
    p.announced[frame.tag] = frame;
    kept(frame.tag);
  }
}

void Mailbox::kept(const Tag& tag) {
  if (!is_collective(tag)) ring(bell_);
}

bool Mailbox::agrees(Node from, const Frame& frame) {
  const uint64_t stream = frame.tag.stream;
  if (const auto mine = streams_.find(stream); mine != streams_.end()) {
    if (mine->second == frame.intent) return true;
    fail_locked(disagree(stream, rank_, mine->second, from, frame.intent));
    return false;
  }
  // An operation ends here when every message of it has come or gone. Another one means that the peer is in a
  // different operation: this rank's may have had no bytes.
  const auto ended =
      std::find_if(ended_.begin(), ended_.end(), [&](const Ended& e) { return e.stream == stream; });
  if (ended == ended_.end()) return true;
  fail_locked({Code::kMismatch,
               "ranks disagree about operation " + std::to_string(stream) + ": " + rank_text(rank_) +
                   " has finished it as " + describe(ended->intent) + ", " + rank_text(from) +
                   " still has messages for it, as " + describe(frame.intent),
               from});
  return false;
}

bool Mailbox::fits(Node from, const Frame& frame, size_t expected_bytes) {
  if (frame.message_bytes == expected_bytes) return true;
  fail_locked({Code::kMismatch,
               "sizes disagree: " + rank_text(from) + " has a message of " + std::to_string(frame.message_bytes) +
                   " bytes where " + rank_text(rank_) + " has one of " + std::to_string(expected_bytes),
               from});
  return false;
}

}  // namespace braid
