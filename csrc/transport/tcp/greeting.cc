// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/greeting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/caught.h"
#include "base/random.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/membership.h"

namespace braid {

Greeting::Greeting(std::shared_ptr<Listener> listener, Fd socket, const Address& source)
    : listener_(std::move(listener)), source_(source), socket_(std::move(socket)) {}

void Greeting::start() {
  GuestList& crowd = listener_->crowd();
  // A peer with an older version waits for our challenge before it sends anything. In a crowd it does not get one
  // early.
  const bool challenge_first = crowd.calm();
  place_ = crowd.enter(shared_from_this());
  in_crowd_ = true;
  // A member's opening has usually arrived by now; its proof cannot have arrived.
  if ((receive() && !proceed()) || !socket_) return;
  if (challenge_first && !challenge()) return;
  const auto watch = listener_->reactor.add(socket_.get(), EPOLLIN, shared_from_this());
  if (!watch.ok()) {
    refuse(watch.status().message());
    return;
  }
  watch_ = watch.value();
  const milliseconds limit = listener_->options.handshake_timeout;
  deadline_ = listener_->reactor.at(begun_ + limit, [self = shared_from_this(), limit] {
    const std::lock_guard lock(self->listener_->mutex());
    if (!self->socket_) return;
    const Status thrown = caught("refusing a connection", [&] {
      self->refuse("it did not say who it is within " + std::to_string(limit.count()) + " ms");
    });
    if (!thrown.ok()) self->refuse("");
  });
}

void Greeting::close() {
  listener_->reactor.remove(std::exchange(watch_, 0));
  listener_->reactor.cancel(std::exchange(deadline_, {}));
  socket_.reset();
}

void Greeting::leave_crowd() {
  if (std::exchange(in_crowd_, false)) listener_->crowd().leave(place_, was_heard_);
}

// An empty reason is not logged.
void Greeting::refuse(const std::string& why) {
  const auto self = shared_from_this();
  // An abrupt end leaves nothing behind in the system, even after thousands of strangers. A stranger that was sent
  // something gets a normal end, so that it can read it.
  if (!challenged_) close_abruptly(socket_.get());
  close();
  leave_crowd();
  listener_->turned_away();
  if (!why.empty()) listener_->complain(source_.host(), why);
}

void Greeting::on_events(uint32_t) {
  const Status thrown = caught("greeting a connection", [this] { greet(); });
  if (thrown.ok()) return;
  const std::lock_guard lock(listener_->mutex());
  listener_->complain(source_.host(), thrown.message());
  refuse("");
}

void Greeting::greet() {
  std::shared_ptr<Membership> membership;
  Fd socket;
  {
    const std::lock_guard lock(listener_->mutex());
    if (!socket_ || !receive() || !proceed() || received_bytes_ < sizeof(Claim)) return;
    membership = check_opening();
    if (!membership) return;
    if (!equal_in_constant_time(claim_.proof, prove_connect(membership->secret, challenge_, claim_.opening))) {
      refuse("it could not prove that it belongs to the group");
      return;
    }
    socket = std::move(socket_);
    close();
    leave_crowd();
    listener_->made_room();
  }
  const Status admitted = membership->admit(challenge_, claim_.opening, std::move(socket));
  if (admitted.ok() || admitted.code() == Code::kAborted) return;
  const std::lock_guard lock(listener_->mutex());
  listener_->complain_of_member(source_.host(), admitted.message());
}

// True if something new was received. False if nothing came or the connection was refused.
bool Greeting::receive() {
  const ssize_t got =
      ::recv(socket_.get(), received_.data() + received_bytes_, received_.size() - received_bytes_, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    refuse("");  // it went away; members do so, too, if their group ends early
    return false;
  }
  received_bytes_ += static_cast<size_t>(got);
  return true;
}

// Handles the bytes received so far. False if the connection was refused.
bool Greeting::proceed() {
  // Do not wait for more bytes of another protocol.
  if (std::memcmp(received_.data(), kMagic.data(), std::min(received_bytes_, kMagic.size())) != 0) {
    refuse(check_greeting({}, kHandshakeVersion));
    return false;
  }
  // A stranger cannot answer a challenge before it was sent.
  if (received_bytes_ > (challenged_ ? sizeof(Claim) : sizeof(Opening))) {
    refuse("it sent more than a handshake");
    return false;
  }
  std::memcpy(&claim_, received_.data(), received_bytes_);
  const Opening& opening = claim_.opening;
  const bool other_version =
      received_bytes_ >= offsetof(Opening, from_rank) && opening.version != kHandshakeVersion;
  if ((received_bytes_ < sizeof opening && !other_version) || was_heard_) return true;
  // Strangers that are refused next get a challenge, too: another version learns ours, and a member learns that it
  // should not try again.
  if (!challenge() || !check_opening()) return false;
  listener_->crowd().hear(place_);
  was_heard_ = true;
  tune_connection(socket_.get());
  return true;
}

// Returns the group that the opening names. Returns null if the connection was refused.
std::shared_ptr<Membership> Greeting::check_opening() {
  const Opening& opening = claim_.opening;
  if (const std::string wrong = check_greeting(opening.magic, opening.version); !wrong.empty()) {
    refuse(wrong);
    return nullptr;
  }
  const std::shared_ptr<Membership> membership = listener_->find(opening.group, opening.to_rank);
  if (!membership) {
    refuse(listener_->was_left(opening.group) ? "" : "it named a group or rank that is not here");
    return nullptr;
  }
  const bool in_range =
      opening.from_rank >= 0 && opening.from_rank < membership->ranks && opening.from_rank != membership->rank;
  if (!in_range) {
    refuse("it named a rank that the group does not have");
    return nullptr;
  }
  if (opening.index >= static_cast<uint32_t>(membership->options.connections)) {
    refuse("it named connection " + std::to_string(opening.index) + ", but ranks of the group have " +
           std::to_string(membership->options.connections) + " to each peer");
    return nullptr;
  }
  return membership;
}

// False if the connection was refused.
bool Greeting::challenge() {
  if (std::exchange(challenged_, true)) return true;
  const Result<Nonce> nonce = Nonce::random();
  if (!nonce.ok()) {
    refuse(nonce.status().message());
    return false;
  }
  challenge_.nonce = nonce.value();
  // The first bytes on a fresh socket always fit.
  if (::send(socket_.get(), &challenge_, sizeof challenge_, MSG_NOSIGNAL) ==
      static_cast<ssize_t>(sizeof challenge_)) {
    return true;
  }
  refuse("");
  return false;
}

}  // namespace braid
