// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/tcp/incoming.h"
#include "transport/tcp/membership.h"
#include "transport/tcp/outgoing.h"

namespace braid {
namespace {

// A peer that leaves closes all its connections. When one has ended, the others may still hold frames. They are
// waited for, until nothing has arrived for this time.
constexpr milliseconds kDrainTime{500};

constexpr size_t kShortBytes = 4 * 1024;  // the largest payload of a short frame

// A peer reads only if it has acknowledged this many bytes: its system alone acknowledges a kAsk.
constexpr uint64_t kReadBytes = 4 * 1024;

}  // namespace

TcpLink::TcpLink(Membership& group, Node peer) : group_(group), peer_(peer) {}
TcpLink::~TcpLink() = default;

Status TcpLink::set_address(const std::string& text) {
  Result<Address> parsed = Address::parse(text);
  if (!parsed.ok()) return parsed.status();
  address_ = parsed.value();
  return {};
}

void TcpLink::attached() {
  attached_ = true;
  for (const auto& incoming : incoming_) incoming->watch();
}

// ---- out

void TcpLink::prepare() {
  // A connection that the peer opened also shows its death.
  if (outgoing_.empty() && incoming_.empty()) connect();
}

void TcpLink::connect() {
  if (state_ != State::kOpen || group_.reactor.forked()) return;
  for (int i = 0; i < group_.options.connections; ++i) {
    outgoing_.push_back(std::make_shared<Outgoing>(group_.shared_from_this(), peer_, static_cast<uint32_t>(i)));
  }
  pace(pace_bytes_per_s_);
  for (const auto& outgoing : outgoing_) outgoing->start();
}

void TcpLink::pace(double bytes_per_s) {
  pace_bytes_per_s_ = bytes_per_s;
  for (const auto& outgoing : outgoing_) {
    if (outgoing != outgoing_.front() || outgoing_.size() == 1) outgoing->pace(bytes_per_s);
  }
}

void TcpLink::post(const Frame& frame, ConstBytes payload, Request* request) {
  if (state_ == State::kEnded || group_.reactor.forked()) return;
  if (frame.kind == FrameKind::kLeave) {
    if (outgoing_.empty() || !outgoing_.front()->ready()) {
      for (const auto& incoming : incoming_) incoming->say_farewell();
    }
    if (outgoing_.empty()) return;  // this frame is no reason to connect
  }
  if (outgoing_.empty()) {
    connect();
    if (outgoing_.empty()) return;
  }
  way_for(frame).post(frame, payload, request);
}

// Short frames take the first connection, long frames the least busy of the others.
Outgoing& TcpLink::way_for(const Frame& frame) {
  if (frame.payload_bytes <= kShortBytes || outgoing_.size() == 1) return *outgoing_.front();
  const auto busier = [](const auto& a, const auto& b) {
    return std::pair(!a->ready(), a->queued_bytes()) < std::pair(!b->ready(), b->queued_bytes());
  };
  return **std::min_element(outgoing_.begin() + 1, outgoing_.end(), busier);
}

bool TcpLink::poll() {
  bool moved = false;
  for (size_t i = 0; state_ != State::kEnded && i < outgoing_.size(); ++i) moved |= outgoing_[i]->poll();
  return moved;
}

Passage TcpLink::passage() {
  Passage sum;
  for (const auto& outgoing : outgoing_) sum += outgoing->passage();
  return sum;
}

bool TcpLink::heard() {
  // On a slow link the answer waits behind long frames. While long frames pass, the peer lives.
  uint64_t acknowledged = 0;
  for (const auto& outgoing : outgoing_) acknowledged += outgoing->acknowledged_bytes();
  const bool reads = acknowledged >= acknowledged_bytes_ + kReadBytes;
  if (reads || acknowledged < acknowledged_bytes_) acknowledged_bytes_ = acknowledged;
  return std::exchange(heard_, false) || reads;
}

// ---- in

Status TcpLink::has_place(uint32_t index) const {
  if (state_ != State::kOpen) return {Code::kAborted, "the group was left"};
  for (const auto& incoming : incoming_) {
    if (incoming->index() != index) continue;
    return {Code::kInvalidArgument, "it knows the group's secret and says it is " + rank_text(peer_) +
                                        ", whose connection " + std::to_string(index) + " from " +
                                        incoming->source() + " is in use; is that rank started twice?"};
  }
  return {};
}

Status TcpLink::admit(uint32_t index, Fd socket, const Digest& proof) {
  // Nothing was sent on it since the challenge, so this always fits.
  if (::send(socket.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(proof.size())) {
    return {Code::kAborted, "it went away"};
  }
  limit_silence(socket.get(), group_.options.peer_timeout);
  heard_ = true;
  incoming_.push_back(std::make_shared<Incoming>(group_.shared_from_this(), peer_, index, std::move(socket)));
  if (attached_) incoming_.back()->watch();
  return {};
}

// ---- endings

void TcpLink::fail(const std::string& what) {
  fail({Code::kPeerLost,
        "rank " + std::to_string(peer_) + (address_ ? " at " + address_->text() : "") + ": " + what, peer_});
}

void TcpLink::fail(Status why) {
  if (state_ == State::kEnded) return;
  if (state_ == State::kOpen) {
    state_ = State::kFailing;
    why_ = std::move(why);
    lose_at_ = Clock::now() + kDrainTime;
    look_again();
  }
  // Runs as a task: the sink may be in the middle of a post(), and frames that have arrived come first.
  group_.reactor.run([group = group_.shared_from_this(), this] {
    group->guarded("losing a peer", [this] { lose_when_drained(); });
  });
}

void TcpLink::lose_connection(int error_number) {
  // ECONNRESET and EPIPE: the peer closed the connection and had not read all bytes.
  const bool closed = error_number == 0 || error_number == ECONNRESET || error_number == EPIPE;
  hung_up_ = hung_up_ || (closed && state_ == State::kOpen);
  fail(describe_loss(error_number));
}

void TcpLink::stirred() {
  heard_ = true;
  if (state_ == State::kFailing && hung_up_) lose_at_ = Clock::now() + kDrainTime;
}

void TcpLink::look_again() {
  group_.reactor.at(lose_at_, [group = group_.shared_from_this(), this] {
    group->guarded("losing a peer", [this] {
      if (state_ != State::kFailing) return;
      Clock::now() < lose_at_ ? look_again() : lose_when_drained();
    });
  });
}

void TcpLink::lose_when_drained() {
  if (state_ != State::kFailing) return;
  const bool drained = std::all_of(incoming_.begin(), incoming_.end(), [](const auto& i) { return i->ended(); });
  if (!drained && Clock::now() < lose_at_) return;
  group_.sink().lost(peer_, why_);
  end();
}

void TcpLink::end() {
  state_ = State::kEnded;
  for (const auto& incoming : incoming_) (void)incoming->close();
  for (const auto& outgoing : outgoing_) outgoing->close();
  incoming_.clear();
  outgoing_.clear();
}

void TcpLink::close() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  // The peer takes the end of its connections to us as our death. It must read our last frames first, so those
  // sockets stay open until the frames are out. Without memory for this, the last frames are not sent.
  std::vector<Fd> companions;
  static_cast<void>(caught("closing connections", [&] { companions.reserve(incoming_.size()); }));
  for (const auto& incoming : incoming_) {
    Fd socket = incoming->close();
    if (companions.size() < companions.capacity()) companions.push_back(std::move(socket));
  }
  for (const auto& outgoing : outgoing_) {
    const Status thrown = caught("closing a connection", [&] { outgoing->detach(std::exchange(companions, {})); });
    if (!thrown.ok()) outgoing->close();
  }
  incoming_.clear();
  outgoing_.clear();
}

}  // namespace braid
