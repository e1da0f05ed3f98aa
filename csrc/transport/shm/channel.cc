// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/channel.h"

#include <algorithm>
#include <utility>

namespace braid::shm {
namespace {

// This part of every ring stays free for the last frames of close(), which cannot wait for room.
constexpr size_t kReserveBytes = kSmallestRing / 4;

bool is_known(FrameKind kind) { return kind >= FrameKind::kMessage && kind <= kLastFrameKind; }

}  // namespace

ShmChannel::ShmChannel(const Link& link, FrameSink& sink)
    : link_(link), sink_(sink), reader_(link.in), writer_(link.out) {}

// ---- out

void ShmChannel::post(const Frame& frame, ConstBytes payload, Request* request) {
  if (closed_ || lost_ || !broken_.ok()) return;
  Frame sized = frame;
  if (payload.size() > writer_.payload_limit()) {
    if (frame.kind != FrameKind::kFail) {
      broken_ = {Code::kInternal, "a frame of " + std::to_string(payload.size()) + " bytes to " + link_.name() +
                                      " is larger than its ring allows"};
      ring(*link_.my_bell);
      return;
    }
    payload = payload.first(writer_.payload_limit());  // a reason cut short is better than none
  }
  sized.payload_bytes = static_cast<uint32_t>(payload.size());
  if (queue_.empty() && write(sized, payload, kReserveBytes)) {
    if (request != nullptr) sink_.written(request);
    return;
  }
  Queued queued{sized, payload, request, {}};
  if (request == nullptr) {
    queued.copy.assign(payload.begin(), payload.end());
    queued.payload = queued.copy;  // the bytes stay at their address when the vector moves
  }
  queue_.push_back(std::move(queued));
}

// True if the frame is out. Rings the doorbell for each frame, so that the peer copies it while we write the next
// one.
bool ShmChannel::write(const Frame& frame, ConstBytes payload, size_t reserve) {
  switch (writer_.write(frame, payload, reserve)) {
    case RingWriter::Outcome::kWritten: ring(*link_.peer_bell); return true;
    case RingWriter::Outcome::kFull: return false;
    case RingWriter::Outcome::kBroken:
      broken_ = {Code::kPeerLost, link_.name() + " broke the ring it reads from", link_.peer};
      break;
    case RingWriter::Outcome::kRefused: broken_ = writer_.refusal().within("a message to " + link_.name()); break;
  }
  ring(*link_.my_bell);  // wakes this process, because only poll() reports the error
  return false;
}

bool ShmChannel::flush() {
  bool moved = false;
  while (!closed_ && !queue_.empty()) {
    if (!write(queue_.front().frame, queue_.front().payload, kReserveBytes)) break;
    moved = true;
    Request* request = queue_.front().request;
    queue_.pop_front();  // before written(), which may post
    if (request != nullptr) sink_.written(request);
  }
  return moved;
}

// ---- in

bool ShmChannel::poll() {
  if (closed_ || lost_) return false;
  // Read before the drain: frames that the peer wrote before it ended still count.
  const bool peer_died = link_.died.load(std::memory_order_acquire);
  const bool hung_up = reader_.hung_up();
  bool moved = drain();
  if (!closed_ && !lost_ && !peer_died && !hung_up) moved |= flush();
  if (closed_ || lost_) return moved;
  if (peer_died) {
    give_up({Code::kPeerLost, link_.name() + " died", link_.peer});
  } else if (hung_up) {
    give_up({Code::kPeerLost, link_.name() + " has closed the group", link_.peer});
  } else if (!broken_.ok()) {
    give_up(broken_);
  } else {
    return moved;
  }
  return true;
}

// Hands over the frames that have arrived up to now. Frames that arrive meanwhile wait, so that a busy peer cannot
// keep us here.
bool ShmChannel::drain() {
  if (!reader_.refresh()) {
    give_up({Code::kPeerLost, link_.name() + " broke the ring it writes to", link_.peer});
    return true;
  }
  if (reader_.empty()) return false;
  while (!closed_ && !lost_ && !reader_.empty()) {
    Frame frame;
    if (!reader_.front(&frame) || !is_known(frame.kind)) {
      give_up({Code::kPeerLost, link_.name() + " wrote a broken record", link_.peer});
    } else {
      deliver(frame);
    }
  }
  if (!closed_ && reader_.settle()) ring(*link_.peer_bell);
  return true;
}

void ShmChannel::deliver(const Frame& frame) {
  Result<Bytes> landing = sink_.landing(link_.peer, frame);
  if (closed_) return;  // the sink failed because of this frame
  if (!landing.ok()) return give_up(landing.status());
  reader_.copy_payload(landing.value());
  // Before arrived(), which may take long: the writer can go on.
  if (reader_.pop(frame)) ring(*link_.peer_bell);
  sink_.arrived(link_.peer, frame);
}

Status ShmChannel::pull(uint64_t address, Bytes into) { return shm::pull(link_, address, into); }

std::optional<uint64_t> ShmChannel::peer_stream() {
  // Relaxed: no other memory is read because of this number.
  const uint64_t stream = link_.header->stream.load(std::memory_order_relaxed);
  return stream == kNoStream ? std::nullopt : std::optional(stream);
}

bool ShmChannel::heard() {
  if (link_.peer_pulse == nullptr) return true;
  const uint32_t pulse = link_.peer_pulse->load(std::memory_order_relaxed);
  return std::exchange(pulse_, pulse) != pulse;
}

// ---- the end

void ShmChannel::give_up(Status why) {
  lost_ = true;
  queue_.clear();
  sink_.lost(link_.peer, std::move(why));
}

// Writes the frame into the rest of the ring. Cuts the payload to the reserve if necessary: a part is better than
// none.
void ShmChannel::write_last(const Queued& words) {
  if (write(words.frame, words.payload, 0)) return;
  const ConstBytes part = words.payload.first(std::min(words.payload.size(), kReserveBytes - kLineBytes));
  Frame cut = words.frame;
  cut.payload_bytes = static_cast<uint32_t>(part.size());
  (void)write(cut, part, 0);
}

void ShmChannel::close() {
  if (std::exchange(closed_, true)) return;
  for (const Queued& queued : queue_) {
    if (queued.frame.kind == FrameKind::kFail || queued.frame.kind == FrameKind::kLeave) write_last(queued);
  }
  queue_.clear();
  writer_.hang_up();
  ring(*link_.peer_bell);
}

}  // namespace braid::shm
