// SPDX-License-Identifier: Apache-2.0
// The receiving half of a mailbox: what each kind of frame does when it arrives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/mailbox.h"

namespace braid {
namespace {

// An honest rank asks once for an operation. A rank that asks without end must not fill the queue of answers.
constexpr milliseconds kTellPause{10};

Status breach(Node from, const std::string& what) {
  return {Code::kPeerLost, rank_text(from) + " broke the protocol (" + what + ")", from};
}

}  // namespace

Result<Bytes> Mailbox::landing(Node from, const Frame& frame) {
  Peer& p = peer(from);
  const size_t size = frame.payload_bytes;
  if (frame.kind != FrameKind::kMessage) {
    if (const std::string wrong = excess(p, frame); !wrong.empty()) return breach(from, wrong);
  }
  switch (frame.kind) {
    case FrameKind::kMessage: {
      if (size != frame.message_bytes || size > p.channel->traits().eager_bytes || p.early.contains(frame.tag))
        break;
      if (!agrees(from, frame)) return failure_;
      if (const auto posted = p.receives.find(frame.tag); posted != p.receives.end()) {
        PostedReceive& receive = posted->second;
        if (!fits(from, frame, receive.bytes.size())) return failure_;
        // The receive would end while another connection still writes there, or while it waits for credit.
        if (receive.is_landing || receive.announced || receive.credit != Credit::kNone) break;
        receive.is_landing = true;
        return receive.bytes;
      }
      if (!keep(p, size)) {
        return breach(from, "it has sent more than " + std::to_string(limits_.early_bytes) +
                                " bytes of small messages that nobody asked for");
      }
      EarlyFrame& early = p.early[frame.tag];
      early.frame = frame;
      early.payload.resize(size);
      return Bytes(early.payload);
    }
    case FrameKind::kPiece: {
      const auto posted = p.receives.find(frame.tag);
      if (posted == p.receives.end()) break;
      if (posted->second.credit == Credit::kNone) break;  // nobody asked for it
      const Bytes whole = posted->second.bytes;
      if (frame.offset > whole.size() || size > whole.size() - frame.offset) break;
      // When the whole message has come, the memory is the user's again. So no more bytes may land than it has.
      if (size > whole.size() - posted->second.landing_bytes || (size == 0 && !whole.empty())) break;
      posted->second.landing_bytes += size;
      return whole.subspan(frame.offset, size);
    }
    case FrameKind::kFail:
      // One reason per peer: another connection may still be writing the first one.
      if (size > kMostReasonBytes || std::exchange(p.gives_reason, true)) break;
      p.reason.resize(size);
      return Bytes(reinterpret_cast<std::byte*>(p.reason.data()), size);
    case FrameKind::kOffer: {
      const auto posted = p.receives.find(frame.tag);
      const bool is_busy = posted != p.receives.end() && (posted->second.is_landing || posted->second.announced ||
                                                          posted->second.credit != Credit::kNone);
      if (size > 0 || !p.channel->traits().reads_peer || is_busy || p.early.contains(frame.tag)) break;
      return Bytes();
    }
    case FrameKind::kRequestToSend: {
      const auto posted = p.receives.find(frame.tag);
      const bool is_landing = posted != p.receives.end() && posted->second.is_landing;
      if (size > 0 || (is_landing && !p.overtaken.contains(frame.tag))) break;
      return Bytes();
    }
    case FrameKind::kTaken: {
      const auto found = p.sends.find(frame.tag);
      if (size > 0 || !p.channel->traits().peer_reads) break;
      if (found != p.sends.end() && found->second.turn > 0) break;
      return Bytes();
    }
    case FrameKind::kClearToSend:
    case FrameKind::kLeave:
    case FrameKind::kAsk:
    case FrameKind::kTell:
    case FrameKind::kWindowUpdate:
    case FrameKind::kWant:
    case FrameKind::kForget:
      if (size == 0) return Bytes();
      break;
  }
  return breach(from, "frame kind " + std::to_string(int(frame.kind)) + ", " + std::to_string(size) + " bytes");
}

void Mailbox::arrived(Node from, const Frame& frame) {
  Peer& p = peer(from);
  switch (frame.kind) {
    case FrameKind::kMessage: on_message(from, frame); break;
    case FrameKind::kClearToSend: on_clear_to_send(from, frame); break;
    case FrameKind::kPiece: on_piece(from, frame); break;
    case FrameKind::kOffer: on_offer(from, frame); break;
    case FrameKind::kTaken:
      if (const auto found = p.sends.find(frame.tag); found != p.sends.end()) {
        finish(take_send(p, found).request, {});
        send_next(from);
      }
      break;
    case FrameKind::kFail: fail_locked(unpack_status(p.reason)); break;
    case FrameKind::kLeave: p.left = true; break;
    case FrameKind::kAsk: on_ask(from); break;
    case FrameKind::kTell:
      p.told_stream = static_cast<int64_t>(frame.tag.stream);
      ring(bell_);
      break;
    case FrameKind::kRequestToSend: on_request_to_send(from, frame); break;
    case FrameKind::kWindowUpdate:
      p.unreported_bytes -= frame.message_bytes;
      send_next(from);
      break;
    case FrameKind::kWant: on_want(from, frame.tag); break;
    case FrameKind::kForget: p.wanted.erase(frame.tag); break;
  }
}

void Mailbox::on_ask(Node from) {
  Peer& p = peer(from);
  const auto now = Clock::now();
  if (now - p.told_at < kTellPause) return;
  p.told_at = now;
  post_control(from, FrameKind::kTell, {current_stream_, 0}, 0);
}

void Mailbox::on_message(Node from, const Frame& frame) {
  Peer& p = peer(from);
  has_come(from, frame.tag);
  if (const auto found = p.early.find(frame.tag); found != p.early.end()) {
    EarlyFrame& early = found->second;
    early.complete = true;
    if (early.waiting.request == nullptr) return kept(frame.tag);
    const PostedReceive waiting = early.waiting;
    if (!early.payload.empty()) std::memcpy(waiting.bytes.data(), early.payload.data(), early.payload.size());
    finish(waiting.request, {});
    drop_early(p, found);
    handed_over(from, waiting.bytes.size());
    return;
  }
  const auto posted = p.receives.find(frame.tag);
  if (posted == p.receives.end()) return;  // failed meanwhile
  Request* request = posted->second.request;
  p.receives.erase(posted);
  handed_over(from, frame.message_bytes);
  finish(request, {});
}

void Mailbox::on_clear_to_send(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (!agrees(from, frame)) return;
  const auto found = p.sends.find(frame.tag);
  if (found == p.sends.end()) {
    p.clearances[frame.tag] = frame;
    return;
  }
  if (!fits(from, frame, found->second.bytes.size())) return;
  const bool was_announced = found->second.turn == 0;
  writing_[found->second.request] = {from, 1};  // it is in a table at any moment
  const WaitingSend waiting = take_send(p, found);
  post_pieces(from, frame.tag, waiting.bytes, waiting.request, was_announced);
  send_next(from);
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
  if (frame.was_announced != 0 && !receive.announced) p.overtaken.insert(frame.tag);
  has_come(from, frame.tag);
  give_back(from, receive);
}

void Mailbox::on_offer(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (!agrees(from, frame)) return;
  has_come(from, frame.tag);
  const auto posted = p.receives.find(frame.tag);
  if (posted == p.receives.end()) {
    p.early[frame.tag] = {frame, {}, true, {}};
    ++p.offers;
    filled_up(from);
    kept(frame.tag);
    return;
  }
  const PostedReceive receive = posted->second;
  if (!fits(from, frame, receive.bytes.size())) return;
  writing_[receive.request] = {from, 1};  // it is in a table at any moment
  p.receives.erase(posted);
  take_offer(from, frame, receive.bytes, receive.request);
}

// Keeps the announcement, so that a receive of another size learns of it: such a receive might send no
// kClearToSend, and both sides would wait.
void Mailbox::on_request_to_send(Node from, const Frame& frame) {
  Peer& p = peer(from);
  if (p.overtaken.erase(frame.tag) > 0) return;  // its pieces came first, over other connections
  if (!agrees(from, frame)) return;
  has_come(from, frame.tag);
  if (const auto posted = p.receives.find(frame.tag); posted != p.receives.end()) {
    if (!fits(from, frame, posted->second.bytes.size())) return;
    posted->second.announced = true;
    if (posted->second.credit == Credit::kNone) let_come(from, frame.tag);
  } else {
    const bool is_new = p.announced.emplace(frame.tag, frame).second;
    if (is_new && frame.message_bytes <= p.channel->traits().eager_bytes) ++p.small;
    filled_up(from);
    kept(frame.tag);
  }
}

void Mailbox::kept(const Tag& tag) {
  if (!is_collective(tag)) ring(bell_);
}

bool Mailbox::agrees(Node from, const Frame& frame) {
  const uint64_t stream = frame.tag.stream;
  if (const auto mine = streams_.find(stream); mine != streams_.end()) {
    if (mine->second == frame.signature) return true;
    fail_locked(disagree(stream, rank_, mine->second, from, frame.signature, codec_name_));
    return false;
  }
  // An operation ends on this rank when all its messages have come and gone. A further message means that the peer
  // is in another operation. This rank's operation may have had no bytes.
  const auto ended =
      std::find_if(ended_.begin(), ended_.end(), [&](const Ended& e) { return e.stream == stream; });
  if (ended == ended_.end()) return true;
  fail_locked({Code::kMismatch,
               "ranks disagree about operation " + std::to_string(stream) + ": " + rank_text(rank_) +
                   " has finished it as " + describe(ended->signature, codec_name_) + ", " + rank_text(from) +
                   " still has messages for it, as " + describe(frame.signature, codec_name_),
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
