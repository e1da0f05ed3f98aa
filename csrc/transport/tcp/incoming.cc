// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/incoming.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/membership.h"
#include "transport/tcp/send_queue.h"

namespace braid {
namespace {

// Returns the error in a header, or "". Called before any memory is allocated for the frame.
std::string check(const Frame& frame, const ChannelTraits& traits) {
  size_t limit = 0;
  switch (frame.kind) {
    case FrameKind::kMessage: limit = traits.eager_bytes; break;
    case FrameKind::kPiece: limit = traits.piece_bytes; break;
    case FrameKind::kFail: limit = kMostReasonBytes; break;
    case FrameKind::kClearToSend:
    case FrameKind::kLeave:
    case FrameKind::kAsk:
    case FrameKind::kTell:
    case FrameKind::kRequestToSend:
    case FrameKind::kWindowUpdate:
    case FrameKind::kWant:
    case FrameKind::kForget: break;
    case FrameKind::kOffer:  // TCP cannot read a peer's memory
    case FrameKind::kTaken:
    default: return "it sent a frame of kind " + std::to_string(int(frame.kind));
  }
  if (frame.payload_bytes <= limit) return "";
  return "it sent " + std::to_string(frame.payload_bytes) + " bytes in a frame of kind " +
         std::to_string(int(frame.kind)) + ", more than the " + std::to_string(limit) +
         " allowed; are the settings the same on all ranks?";
}

}  // namespace

Incoming::Incoming(std::shared_ptr<Membership> group, Node peer, uint32_t index, Fd socket)
    : group_(std::move(group)), peer_(peer), index_(index), socket_(std::move(socket)) {}

void Incoming::watch() {
  if (!open() || watch_ != 0) return;
  const auto watch = group_->reactor.add(socket_.get(), EPOLLIN | EPOLLRDHUP, shared_from_this());
  if (watch.ok()) {
    watch_ = watch.value();
  } else {
    stop();
    group_->link(peer_).fail(watch.status().message());
  }
}

std::string Incoming::source() const { return socket_ ? remote_address_of(socket_.get()).text() : "?"; }

void Incoming::say_farewell() {
  if (socket_) (void)::send(socket_.get(), &kFarewell, sizeof kFarewell, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Fd Incoming::close() {
  group_->reactor.remove(std::exchange(watch_, 0));
  return std::move(socket_);
}

void Incoming::stop() {
  ended_ = true;
  group_->reactor.remove(std::exchange(watch_, 0));
}

void Incoming::on_events(uint32_t) {
  group_->guarded("reading from a peer", [this] {
    if (!open()) return;
    read_slice();
    if (!open() || frames_left_ > 0 || buffered_begin_ == buffered_end_) return;
    // epoll calls again while the socket holds bytes, but it does not know of the bytes in our buffer.
    group_->reactor.run([self = shared_from_this()] { self->on_events(0); });
  });
}

void Incoming::read_slice() {
  frames_left_ = kSliceFrames;
  take_buffered();
  size_t bytes = 0;
  while (open() && bytes < kSliceBytes && frames_left_ > 0) {
    // The same call reads the payload and the next header.
    std::array<iovec, 2> parts;
    size_t count = 0, asked = 0;
    const size_t kept = buffered_end_ - buffered_begin_;  // the beginning of a header
    std::memmove(buffer_.data(), buffer_.data() + buffered_begin_, kept);
    buffered_begin_ = 0;
    buffered_end_ = kept;
    const Bytes direct = into_.first(std::min(into_.size(), kSliceBytes));
    if (!direct.empty()) parts[count++] = {direct.data(), direct.size()};
    if (direct.size() == into_.size()) parts[count++] = {buffer_.data() + kept, buffer_.size() - kept};
    for (size_t i = 0; i < count; ++i) asked += parts[i].iov_len;

    const ssize_t got = ::readv(socket_.get(), parts.data(), static_cast<int>(count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      stop();
      group_->link(peer_).lose_connection(got == 0 ? 0 : errno);
      return;
    }
    bytes += static_cast<size_t>(got);
    group_->meter().read(static_cast<size_t>(got));
    group_->link(peer_).stirred();
    const size_t landed = std::min(static_cast<size_t>(got), direct.size());
    into_ = into_.subspan(landed);
    buffered_end_ += static_cast<size_t>(got) - landed;
    take_buffered();
    if (static_cast<size_t>(got) < asked && buffered_begin_ == buffered_end_) return;  // empty, most likely
  }
}

// Handles the frames in the buffer, up to the last whole header or the end of the slice.
void Incoming::take_buffered() {
  while (open() && frames_left_ > 0) {
    if (!in_frame_ && !begin_frame()) return;
    const size_t take = std::min(into_.size(), buffered_end_ - buffered_begin_);
    if (take > 0) std::memcpy(into_.data(), buffer_.data() + buffered_begin_, take);
    buffered_begin_ += take;
    into_ = into_.subspan(take);
    if (!into_.empty()) return;
    in_frame_ = false;
    --frames_left_;
    group_->sink().arrived(peer_, frame_);
  }
}

// False if the buffer has no whole header, or if reading must stop.
bool Incoming::begin_frame() {
  if (buffered_end_ - buffered_begin_ < sizeof frame_) return false;
  std::memcpy(&frame_, buffer_.data() + buffered_begin_, sizeof frame_);
  buffered_begin_ += sizeof frame_;
  if (const std::string wrong = check(frame_, group_->traits); !wrong.empty()) {
    stop();
    group_->link(peer_).fail(wrong);
    return false;
  }
  const Result<Bytes> landing = group_->sink().landing(peer_, frame_);
  if (!open()) return false;
  if (!landing.ok()) {
    stop();
    group_->link(peer_).fail(landing.status());
    return false;
  }
  into_ = landing.value();
  in_frame_ = true;
  return true;
}

}  // namespace braid
