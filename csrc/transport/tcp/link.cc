// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/tcp/incoming.h"
#include "transport/tcp/membership.h"
#include "transport/tcp/outgoing.h"

namespace braid {
namespace {

// A peer that goes closes all its connections. How long those that are not yet at their end are waited for, since
// they may hold more frames, when one of them is, and nothing arrives.
constexpr milliseconds kDrainTime{500};

constexpr size_t kShortBytes = 4 * 1024;  // of a frame's payload

}  // namespace

Link::Link(Membership& group, Node peer) : group_(group), peer_(peer) {}
Link::~Link() = default;

Status Link::set_address(const std::string& text) {
  Result<Address> parsed = Address::parse(text);
  if (!parsed.ok()) return parsed.status();
  address_ = parsed.value();
  return {};
}

void Link::attached() {
  attached_ = true;
  for (const auto& incoming : incoming_) incoming->watch();
}

// ---- out

void Link::prepare() {
  // Over a connection of the peer's we would see it die just as well.
  if (outgoing_.empty() && incoming_.empty()) connect();
}

void Link::connect() {
  if (state_ != State::kOpen || group_.reactor.forked()) return;
  for (int i = 0; i < group_.options.connections; ++i) {
    outgoing_.push_back(std::make_shared<Outgoing>(group_.shared_from_this(), peer_, static_cast<uint32_t>(i)));
  }
  pace(pace_bytes_per_s_);
  for (const auto& outgoing : outgoing_) outgoing->start();
}

void Link::pace(double bytes_per_s) {
  pace_bytes_per_s_ = bytes_per_s;
  for (const auto& outgoing : outgoing_) {
    if (outgoing != outgoing_.front() || outgoing_.size() == 1) outgoing->pace(bytes_per_s);
  }
}

void Link::post(const Frame& frame, ConstBytes payload, Request* request) {
  if (state_ == State::kEnded || group_.reactor.forked()) return;
  if (frame.kind == FrameKind::kLeave) {
    if (outgoing_.empty() || !outgoing_.front()->ready()) {
      for (const auto& incoming : incoming_) incoming->say_farewell();
    }
    if (outgoing_.empty()) return;  // no reason to connect
  }
  if (outgoing_.empty()) {
    connect();
    if (outgoing_.empty()) return;
  }
  way_for(frame).post(frame, payload, request);
}

// Short frames take the first, long ones the least busy of the others.
Outgoing& Link::way_for(const Frame& frame) {
  if (frame.payload_bytes <= kShortBytes || outgoing_.size() == 1) return *outgoing_.front();
  const auto busier = [](const auto& a, const auto& b) {
    return std::pair(!a->ready(), a->queued_bytes()) < std::pair(!b->ready(), b->queued_bytes());
  };
  return **std::min_element(outgoing_.begin() + 1, outgoing_.end(), busier);
}

bool Link::poll() {
  bool moved = false;
  for (size_t i = 0; state_ != State::kEnded && i < outgoing_.size(); ++i) moved |= outgoing_[i]->poll();
  return moved;
}

Passage Link::passage() {
  Passage sum;
  for (const auto& outgoing : outgoing_) sum += outgoing->passage();
  return sum;
}

// ---- in

Status Link::admit(uint32_t index, Fd socket, const Digest& proof) {
  if (state_ != State::kOpen) return {Code::kAborted, "the group was left"};
  for (const auto& incoming : incoming_) {
    if (incoming->index() == index) return {Code::kInvalidArgument, "the peer has that connection already"};
  }
  // Nothing was sent on it since the challenge, so this always fits.
  if (::send(socket.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(proof.size())) {
    return {Code::kAborted, "it went away"};
  }
  incoming_.push_back(std::make_shared<Incoming>(group_.shared_from_this(), peer_, index, std::move(socket)));
  if (attached_) incoming_.back()->watch();
  return {};
}

// ---- endings

void Link::fail(const std::string& what) {
  fail({Code::kPeerLost,
        "rank " + std::to_string(peer_) + (address_ ? " at " + address_->text() : "") + ": " + what, peer_});
}

void Link::fail(Status why) {
  if (state_ == State::kEnded) return;
  if (state_ == State::kOpen) {
    state_ = State::kFailing;
    why_ = std::move(why);
    lose_at_ = Clock::now() + kDrainTime;
    look_again();
  }
  // Not from here: the sink may be in the middle of a post(), and what has arrived comes first.
  group_.reactor.run([group = group_.shared_from_this(), this] {
    if (const auto lock = group->enter()) lose_when_drained();
  });
}

void Link::lose_connection(int error_number) {
  // Reset or broken: the peer closed it, and had not read all.
  const bool closed = error_number == 0 || error_number == ECONNRESET || error_number == EPIPE;
  hung_up_ = hung_up_ || (closed && state_ == State::kOpen);
  fail(describe_loss(error_number));
}

void Link::stirred() {
  if (state_ == State::kFailing && hung_up_) lose_at_ = Clock::now() + kDrainTime;
}

void Link::look_again() {
  group_.reactor.at(lose_at_, [group = group_.shared_from_this(), this] {
    const auto lock = group->enter();
    if (!lock || state_ != State::kFailing) return;
    Clock::now() < lose_at_ ? look_again() : lose_when_drained();
  });
}

void Link::lose_when_drained() {
  if (state_ != State::kFailing) return;
  const bool drained = std::all_of(incoming_.begin(), incoming_.end(), [](const auto& i) { return i->ended(); });
  if (!drained && Clock::now() < lose_at_) return;
  group_.sink().lost(peer_, why_);
  end();
}

void Link::end() {
  state_ = State::kEnded;
  for (const auto& incoming : incoming_) (void)incoming->close();
  for (const auto& outgoing : outgoing_) outgoing->close();
  incoming_.clear();
  outgoing_.clear();
}

void Link::close() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  // To the peer, the end of its connections to us is our death. It shall read our last words first: its sockets
  // stay open until those are out.
  std::vector<Fd> companions;
  for (const auto& incoming : incoming_) companions.push_back(incoming->close());
  for (const auto& outgoing : outgoing_) outgoing->detach(std::exchange(companions, {}));
  incoming_.clear();
  outgoing_.clear();
}

}  // namespace braid
