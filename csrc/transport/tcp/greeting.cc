// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/greeting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/membership.h"

namespace braid {

Greeting::Greeting(std::shared_ptr<Listener> listener, Fd socket, std::string source)
    : listener_(std::move(listener)), source_(std::move(source)), socket_(std::move(socket)) {}

void Greeting::start() {
  tune_connection(socket_.get());
  const Result<Nonce> nonce = Nonce::random();
  if (!nonce.ok()) {
    refuse(nonce.status().message());
    return;
  }
  challenge_.nonce = nonce.value();
  // The first bytes on a fresh socket always fit.
  if (::send(socket_.get(), &challenge_, sizeof challenge_, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof challenge_)) {
    refuse("");
    return;
  }
  const auto watch = listener_->reactor.add(socket_.get(), EPOLLIN, shared_from_this());
  if (!watch.ok()) {
    refuse(watch.status().message());
    return;
  }
  watch_ = watch.value();
  const milliseconds limit = listener_->options.handshake_timeout;
  deadline_ = listener_->reactor.at(begun_ + limit, [self = shared_from_this(), limit] {
    const std::lock_guard lock(self->listener_->mutex());
    if (self->socket_) self->refuse("it did not say who it is within " + std::to_string(limit.count()) + " ms");
  });
}

void Greeting::close() {
  listener_->reactor.remove(std::exchange(watch_, 0));
  listener_->reactor.cancel(std::exchange(deadline_, {}));
  socket_.reset();
}

// An empty reason means that nobody needs to know.
void Greeting::refuse(const std::string& why) {
  close();
  if (!why.empty()) listener_->complain(source_, why);
  listener_->done(shared_from_this());
}

void Greeting::on_events(uint32_t) {
  std::shared_ptr<Membership> membership;
  Fd socket;
  {
    const std::lock_guard lock(listener_->mutex());
    if (!socket_ || !receive_claim()) return;
    membership = check_claim();
    if (!membership) return;
    socket = std::move(socket_);
    listener_->reactor.remove(std::exchange(watch_, 0));
    listener_->reactor.cancel(std::exchange(deadline_, {}));
    listener_->done(shared_from_this());
  }
  const Status admitted = membership->admit(challenge_, claim_, std::move(socket));
  if (admitted.ok() || admitted.code() == Code::kAborted) return;
  const std::lock_guard lock(listener_->mutex());
  listener_->complain(source_, admitted.message());
}

// True when the whole claim is there.
bool Greeting::receive_claim() {
  const ssize_t got =
      ::recv(socket_.get(), received_.data() + received_bytes_, received_.size() - received_bytes_, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    refuse("");  // it went away; members do too, when their group ends that early
    return false;
  }
  received_bytes_ += static_cast<size_t>(got);
  if (received_bytes_ > sizeof(Claim)) {
    refuse("it sent more than a handshake");
    return false;
  }
  // Whoever speaks another protocol need not be waited for.
  if (std::memcmp(received_.data(), kMagic.data(), std::min(received_bytes_, kMagic.size())) != 0) {
    refuse(check_greeting({}, kWireVersion));
    return false;
  }
  if (received_bytes_ < sizeof(Claim)) return false;
  std::memcpy(&claim_, received_.data(), sizeof claim_);
  return true;
}

// The group that the claim is good for; otherwise the connection was refused.
std::shared_ptr<Membership> Greeting::check_claim() {
  if (const std::string wrong = check_greeting(claim_.magic, claim_.version); !wrong.empty()) {
    refuse(wrong);
    return nullptr;
  }
  const std::shared_ptr<Membership> membership = listener_->find(claim_.group, claim_.to_rank);
  if (!membership) {
    refuse(listener_->was_left(claim_.group) ? "" : "it named a group or rank that is not here");
    return nullptr;
  }
  const bool in_range = claim_.from_rank >= 0 && claim_.from_rank < membership->ranks &&
                        claim_.from_rank != membership->rank && claim_.index < kMaxTcpConnections;
  if (!in_range) {
    refuse("it named a rank that the group does not have");
    return nullptr;
  }
  if (!equal_in_constant_time(claim_.proof, prove_connect(membership->secret, challenge_, claim_))) {
    refuse("it could not prove that it belongs to the group");
    return nullptr;
  }
  return membership;
}

}  // namespace braid
