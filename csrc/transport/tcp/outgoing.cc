// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/outgoing.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "transport/tcp/membership.h"

namespace braid {
namespace {

// A listener with a full backlog may refuse for a moment; a dead one refuses for ever. The delays are about 1 s
// together. A listener with too many strangers may close a connection without any bytes: then we retry until the
// deadline.
constexpr std::array<milliseconds, 5> kRetryDelays = {milliseconds(20), milliseconds(80), milliseconds(200),
                                                      milliseconds(300), milliseconds(400)};
constexpr milliseconds kFarewellTime{2000};

static_assert(sizeof(Challenge) == sizeof(Digest));

Frame leaving() {
  Frame frame;
  frame.kind = FrameKind::kLeave;
  return frame;
}

}  // namespace

Outgoing::Outgoing(std::shared_ptr<Membership> group, Node peer, uint32_t index)
    : group_(std::move(group)), peer_(peer), index_(index) {}

// Runs body() in the reactor's thread under the rules of this class. An exception fails the group, if it still
// exists.
template <class Body>
void Outgoing::guarded(Body body) {
  if (!detached_.load(std::memory_order_acquire)) {
    const auto lock = group_->enter();
    if (!detached_.load(std::memory_order_acquire)) {
      if (!lock || state_ == State::kClosed) return;
      if (const Status thrown = caught("writing to a peer", body); !thrown.ok()) group_->sink().broke(thrown);
      return;
    }
  }
  if (state_ != State::kClosed && !caught("saying the last words to a peer", body).ok()) close();
}

// ---- connecting

void Outgoing::start() {
  // A quarter longer, so that Mailbox::look_for_silence() reports a needed peer first, with the reason.
  const milliseconds limit = group_->options.peer_timeout + group_->options.peer_timeout / 4;
  if (limit.count() > 0) {
    deadline_ = group_->reactor.at(Clock::now() + limit, [self = shared_from_this(), limit] {
      self->guarded([&] {
        self->lose("no connection within " + std::to_string(limit.count()) + " ms" +
                   (self->last_trouble_.empty() ? "" : ", at last " + self->last_trouble_));
      });
    });
  }
  connect();
}

void Outgoing::connect() {
  int error_number = 0;
  socket_ = begin_connect(group_->link(peer_).address(), &error_number);
  if (!socket_) {
    retry(describe_loss(error_number));
    return;
  }
  state_ = State::kConnecting;
  limit_silence(socket_.get(), group_->options.peer_timeout);
  if (pace_bytes_per_s_ > 0) pace_socket(socket_.get(), pace_bytes_per_s_);
  received_bytes_ = 0;
  // Edge-triggered, so that a writable socket costs nothing while there is nothing to write.
  const auto watch =
      group_->reactor.add(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, shared_from_this());
  if (watch.ok()) {
    watch_ = watch.value();
  } else {
    lose(watch.status().message());
  }
}

void Outgoing::retry(const std::string& what) {
  const bool turned_away = std::exchange(state_, State::kIdle) == State::kChallenge;
  group_->reactor.remove(std::exchange(watch_, 0));
  socket_.reset();
  last_trouble_ = what;
  if (!turned_away && attempts_ == kRetryDelays.size()) {
    lose(what);
    return;
  }
  const size_t delay = turned_away ? std::min(turned_away_++, kRetryDelays.size() - 1) : attempts_++;
  retry_timer_ = group_->reactor.at(Clock::now() + kRetryDelays[delay],
                                    [self = shared_from_this()] { self->guarded([&] { self->connect(); }); });
}

void Outgoing::on_events(uint32_t events) {
  guarded([&] { proceed(events); });
}

void Outgoing::proceed(uint32_t events) {
  direct_bytes_ = 0;
  if ((events & EPOLLOUT) != 0) writable_ = true;
  if (state_ == State::kConnecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    int error_number = 0;
    socklen_t bytes = sizeof error_number;
    (void)::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &bytes);
    if (error_number != 0) {
      retry(describe_loss(error_number));
      return;
    }
    state_ = State::kChallenge;
    send_opening();
  }
  if (state_ == State::kChallenge && receive(sizeof(Challenge))) on_challenge();
  if (state_ == State::kProof && receive(sizeof(Digest))) on_proof();
  if (state_ == State::kReady) check_for_end();
  if (state_ == State::kReady) flush();
}

// True if `wanted_bytes` of the handshake have arrived.
bool Outgoing::receive(size_t wanted_bytes) {
  for (;;) {
    const ssize_t got =
        ::recv(socket_.get(), received_.data() + received_bytes_, wanted_bytes - received_bytes_, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      retry(describe_loss(got == 0 ? 0 : errno) + " during the handshake");
      return false;
    }
    received_bytes_ += static_cast<size_t>(got);
    if (received_bytes_ < wanted_bytes) continue;
    received_bytes_ = 0;
    return true;
  }
}

// Sent at once: an acceptor with too many strangers keeps those that have sent an opening.
void Outgoing::send_opening() {
  const Result<Nonce> nonce = Nonce::random();
  if (!nonce.ok()) {
    lose(nonce.status().message());
    return;
  }
  opening_.from_rank = group_->rank;
  opening_.to_rank = peer_;
  opening_.index = index_;
  opening_.group = group_->group;
  opening_.nonce = nonce.value();
  if (::send(socket_.get(), &opening_, sizeof opening_, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof opening_)) {
    retry("connection closed during the handshake");
  }
}

void Outgoing::on_challenge() {
  Challenge challenge;
  std::memcpy(&challenge, received_.data(), sizeof challenge);
  if (const std::string wrong = check_greeting(challenge.magic, challenge.version); !wrong.empty()) {
    lose(wrong);
    return;
  }
  state_ = State::kProof;
  const Digest proof = prove_connect(group_->secret, challenge, opening_);
  expected_proof_ = prove_accept(group_->secret, challenge, opening_);
  expected_refusal_ = prove_taken(group_->secret, challenge, opening_);
  if (::send(socket_.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(proof.size())) {
    retry("connection closed during the handshake");
  }
}

void Outgoing::on_proof() {
  if (equal_in_constant_time(received_, expected_refusal_)) {
    lose("it has a connection of " + rank_text(group_->rank) + " from another process already; is " +
         rank_text(group_->rank) + " started twice?");
    return;
  }
  if (!equal_in_constant_time(received_, expected_proof_)) {
    lose("it could not prove that it belongs to the group");
    return;
  }
  state_ = State::kReady;
  writable_ = true;
  group_->reactor.cancel(std::exchange(deadline_, {}));
}

// Nothing comes in this direction except a farewell and the end.
void Outgoing::check_for_end() {
  std::byte byte;
  ssize_t got = ::recv(socket_.get(), &byte, 1, 0);
  if (got > 0 && byte == kFarewell) {
    if (!detached_.load(std::memory_order_relaxed)) group_->sink().arrived(peer_, leaving());
    if (state_ != State::kReady) return;
    got = ::recv(socket_.get(), &byte, 1, 0);
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  got > 0 ? lose("it sent what it must not send") : lose_connection(got == 0 ? 0 : errno);
}

void Outgoing::pace(double bytes_per_s) {
  pace_bytes_per_s_ = bytes_per_s;
  if (socket_) pace_socket(socket_.get(), bytes_per_s);
}

// ---- frames

void Outgoing::post(const Frame& frame, ConstBytes payload, Request* request) {
  queue_.push(frame, payload, request);
  while (direct_bytes_ < kSliceBytes && flush_slice()) {
  }
  if (direct_bytes_ >= kSliceBytes) flush_soon();
}

bool Outgoing::poll() {
  direct_bytes_ = 0;
  return flush_slice();
}

// Makes one system call. True if anything moved.
bool Outgoing::flush_slice() {
  if (state_ != State::kReady || !writable_ || queue_.empty()) return false;
  std::vector<Request*> finished = std::exchange(finished_, {});
  const SendQueue::Outcome outcome = queue_.write(socket_.get(), finished);
  direct_bytes_ += outcome.bytes;
  written_bytes_ += outcome.bytes;
  unpassed_bytes_ += outcome.bytes;
  if (!detached_.load(std::memory_order_relaxed)) group_->meter().wrote(outcome.bytes);
  if (outcome.full) writable_ = false;
  if (outcome.error_number != 0) {
    writable_ = false;
    lose_connection(outcome.error_number);
  }
  for (Request* request : finished) {
    if (!detached_.load(std::memory_order_relaxed)) group_->sink().written(request);
  }
  finished.clear();
  finished_ = std::move(finished);
  return outcome.bytes > 0;
}

Passage Outgoing::passage() {
  if (state_ != State::kReady) return {};
  const uint64_t left =
      unpassed_bytes_ == 0 ? 0 : std::min<uint64_t>(unpassed_bytes_, unacknowledged_bytes(socket_.get()));
  return {std::exchange(unpassed_bytes_, left) - left, left + queue_.bytes()};
}

uint64_t Outgoing::acknowledged_bytes() const {
  if (state_ != State::kReady || written_bytes_ == 0) return 0;
  return written_bytes_ - std::min<uint64_t>(written_bytes_, unacknowledged_bytes(socket_.get()));
}

// Called on the reactor's thread.
void Outgoing::flush() {
  if (flush_slice()) flush_soon();
  if (detached_.load(std::memory_order_relaxed) && queue_.empty()) close();
}

void Outgoing::flush_soon() {
  if (flush_queued_ || state_ != State::kReady || !writable_ || queue_.empty()) return;
  flush_queued_ = true;
  group_->reactor.run([self = shared_from_this()] {
    self->guarded([&] {
      self->flush_queued_ = false;
      self->direct_bytes_ = 0;
      if (self->state_ == State::kReady) self->flush();
    });
  });
}

// ---- endings

void Outgoing::lose(const std::string& what) {
  if (detached_.load(std::memory_order_relaxed)) {
    close();
  } else {
    group_->link(peer_).fail(what);
  }
}

void Outgoing::lose_connection(int error_number) {
  if (detached_.load(std::memory_order_relaxed)) {
    close();
  } else {
    group_->link(peer_).lose_connection(error_number);
  }
}

void Outgoing::detach(std::vector<Fd> companions) {
  queue_.drop_requests();
  if (state_ == State::kClosed || queue_.empty() || group_->reactor.forked()) {
    close();
    return;
  }
  companions_ = std::move(companions);
  const auto self = shared_from_this();
  group_->reactor.at(Clock::now() + kFarewellTime, [self] { self->guarded([&] { self->close(); }); });
  group_->begin_farewell();
  detached_.store(true, std::memory_order_release);
  // A ready connection may get no further event, so a task flushes it; a connection that is being made flushes
  // later. From here on only the reactor's thread may close. Without memory for the task, the timer closes.
  static_cast<void>(caught("saying the last words to a peer", [&] {
    group_->reactor.run([self] {
      self->guarded([&] {
        self->flush_queued_ = false;
        if (self->state_ == State::kReady) self->flush();
      });
    });
  }));
}

void Outgoing::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  group_->reactor.remove(std::exchange(watch_, 0));
  group_->reactor.cancel(retry_timer_);
  group_->reactor.cancel(deadline_);
  socket_.reset();
  queue_.clear();
  companions_.clear();
  if (detached_.load(std::memory_order_relaxed)) group_->end_farewell();
}

}  // namespace braid
