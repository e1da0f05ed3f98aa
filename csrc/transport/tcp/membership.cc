// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/membership.h"

#include <sys/socket.h>

#include <utility>

#include "transport/tcp/listener.h"

namespace braid {

Membership::Membership(std::shared_ptr<Listener> listener, TcpOptions options_, Reactor& reactor_,
                       const Digest& group_, std::string secret_, Node rank_, int ranks_, FrameSink& sink)
    : options(std::move(options_)),
      reactor(reactor_),
      group(group_),
      secret(std::move(secret_)),
      rank(rank_),
      ranks(ranks_),
      traits{options.eager_bytes, options.piece_bytes, false, false, true},
      listener_(std::move(listener)),
      sink_(sink),
      mutex_(sink.mutex()) {
  for (Node peer = 0; peer < ranks; ++peer) links_.push_back(std::make_unique<TcpLink>(*this, peer));
}

Membership::~Membership() = default;

std::unique_lock<std::mutex> Membership::enter() {
  // The first check avoids a mutex that no longer exists. The second check sees a leave() that held the mutex
  // before.
  if (!open_.load(std::memory_order_acquire)) return {};
  std::unique_lock lock(mutex_);
  if (!open_.load(std::memory_order_relaxed)) return {};
  return lock;
}

Status Membership::admit(const Challenge& challenge, const Opening& opening, Fd socket) {
  const auto lock = enter();
  if (!lock) return {Code::kAborted, "the group was left"};
  Status admitted;
  const Status thrown = caught("admitting a connection", [&] {
    TcpLink& peer = link(opening.from_rank);
    admitted = peer.has_place(opening.index);
    if (admitted.ok()) {
      admitted = peer.admit(opening.index, std::move(socket), prove_accept(secret, challenge, opening));
    } else if (admitted.code() == Code::kInvalidArgument) {
      // Both connections know the secret, and the second may be the honest one: it learns why it is refused.
      const Digest taken = prove_taken(secret, challenge, opening);
      (void)::send(socket.get(), taken.data(), taken.size(), MSG_NOSIGNAL);
    }
  });
  if (thrown.ok()) return admitted;
  sink_.broke(thrown);  // the peer relies on this connection
  return thrown;
}

void Membership::leave() {
  if (reactor.forked()) return;
  if (open_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    open_.store(false, std::memory_order_release);
    for (const auto& link : links_) link->close();
  }
  listener_->forget(*this);
  reactor.quiesce();
}

void Membership::wait_for_last_words(Deadline deadline) {
  if (reactor.forked()) return;
  std::unique_lock lock(farewell_mutex_);
  farewell_ended_.wait_until(lock, deadline, [this] { return farewells_ == 0; });
}

void Membership::begin_farewell() {
  const std::lock_guard lock(farewell_mutex_);
  ++farewells_;
}

void Membership::end_farewell() {
  const std::lock_guard lock(farewell_mutex_);
  --farewells_;
  farewell_ended_.notify_all();
}

}  // namespace braid
