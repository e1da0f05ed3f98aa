// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/membership.h"

namespace braid {
namespace {

// How long a stranger may keep others waiting when there are too many.
constexpr milliseconds kPatience{1000};
constexpr milliseconds kOutOfDescriptorsPause{100};
constexpr size_t kRememberedGroups = 256;
constexpr size_t kRememberedSources = 1024;

}  // namespace

Listener::Listener(TcpOptions options_, Reactor& reactor_, Fd socket)
    : options(std::move(options_)),
      reactor(reactor_),
      address(local_address_of(socket.get())),
      socket_(std::move(socket)) {}

Status Listener::open() {
  const std::lock_guard lock(mutex_);
  const auto watch = reactor.add(socket_.get(), EPOLLIN, shared_from_this());
  if (!watch.ok()) return watch.status();
  watch_ = watch.value();
  return {};
}

void Listener::close() {
  if (reactor.forked()) return;
  const std::lock_guard lock(mutex_);
  reactor.remove(std::exchange(watch_, 0));
  reactor.cancel(pause_timer_);
  socket_.reset();
  for (const auto& greeting : greetings_) greeting->close();
  greetings_.clear();
}

// ---- members

Status Listener::enroll(const std::shared_ptr<Membership>& membership) {
  const std::lock_guard lock(mutex_);
  auto& place = members_[{membership->group, membership->rank}];
  if (!place.expired()) {
    return {Code::kInvalidArgument, "rank " + std::to_string(membership->rank) + " is in this group already"};
  }
  place = membership;
  return {};
}

void Listener::forget(const Membership& membership) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find({membership.group, membership.rank});
  if (found == members_.end() || found->second.lock().get() != &membership) return;
  members_.erase(found);
  left_.push_back(membership.group);
  if (left_.size() > kRememberedGroups) left_.pop_front();
}

std::shared_ptr<Membership> Listener::find(const Digest& group, Node rank) const {
  const auto found = members_.find({group, rank});
  return found == members_.end() ? nullptr : found->second.lock();
}

bool Listener::was_left(const Digest& group) const {
  return std::find(left_.begin(), left_.end(), group) != left_.end();
}

// ---- strangers

void Listener::on_events(uint32_t) {
  const std::lock_guard lock(mutex_);
  while (socket_ && !paused_) {
    if (greetings_.size() >= kMaxGreetings) {
      pause_until(greetings_.front()->begun() + kPatience);
      return;
    }
    if (!accept_one()) return;
  }
}

bool Listener::accept_one() {
  sockaddr_storage storage;
  socklen_t bytes = sizeof storage;
  Fd socket(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      complain("", "cannot accept connections: " + describe_loss(errno));
      pause_until(Clock::now() + kOutOfDescriptorsPause);
    }
    return errno == EINTR || errno == ECONNABORTED;
  }
  const std::string source = Address(reinterpret_cast<const sockaddr*>(&storage), bytes).host();
  const auto greeting = std::make_shared<Greeting>(shared_from_this(), std::move(socket), source);
  greetings_.push_back(greeting);
  greeting->start();
  return true;
}

void Listener::pause_until(Deadline when) {
  paused_ = true;
  (void)reactor.modify(watch_, 0);
  pause_timer_ = reactor.at(when, [self = shared_from_this()] {
    const std::lock_guard lock(self->mutex_);
    if (!self->paused_ || !self->socket_) return;
    if (self->greetings_.size() >= kMaxGreetings) {
      self->greetings_.front()->refuse("it kept others waiting");
    } else {
      self->resume();
    }
  });
}

void Listener::resume() {
  paused_ = false;
  reactor.cancel(pause_timer_);
  (void)reactor.modify(watch_, EPOLLIN);
}

void Listener::done(const std::shared_ptr<Greeting>& greeting) {
  greetings_.remove(greeting);
  if (paused_ && socket_) resume();
}

void Listener::complain(const std::string& source, const std::string& what) {
  if (known_sources_.size() >= kRememberedSources || !known_sources_.insert(source).second) return;
  log(LogLevel::kWarning,
      source.empty() ? what : "closed a connection from " + source + ": " + what + " (said once for each source)");
}

}  // namespace braid
