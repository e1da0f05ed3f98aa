// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/membership.h"

namespace braid {
namespace {

constexpr milliseconds kOutOfDescriptorsPause{100};
constexpr milliseconds kHoldSilent{60'000};  // how long silent connections are held after a crowd
constexpr int kAcceptedInOneGo = 64;         // then other callbacks of this thread run
constexpr size_t kRememberedGroups = 256;

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
  for (const auto& greeting : crowd_.take_all()) greeting->close();
}

// ---- members

Status Listener::enroll(const std::shared_ptr<Membership>& membership) {
  const std::lock_guard lock(mutex_);
  auto& place = members_[{membership->group, membership->rank}];
  if (!place.expired()) {
    return {Code::kInvalidArgument, "rank " + std::to_string(membership->rank) + " is in this group already"};
  }
  place = membership;
  crowd_.hurry(Clock::now());  // the group's members connect now
  if (pause_ == Pause::kForTime) resume();
  return {};
}

void Listener::forget(const Membership& membership) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find({membership.group, membership.rank});
  if (found == members_.end() || found->second.lock().get() != &membership) return;
  members_.erase(found);
  static_cast<void>(caught("remembering a group", [&] { left_.push_back(membership.group); }));
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
  for (int i = 0; i < kAcceptedInOneGo && socket_ && pause_ == Pause::kNone; ++i) {
    bool more = false;
    const Status thrown = caught("accepting a connection", [&] { more = make_room() && accept_one(); });
    if (!thrown.ok()) {
      complain("", thrown.message());
      pause_until(Clock::now() + kOutOfDescriptorsPause, Pause::kForRoom);
    }
    if (!more) return;
  }
}

// While there is a crowd, the system keeps silent connections to itself. So members, which send at once, pass
// them. At other times it does not, because peers with an older protocol wait for our first bytes.
void Listener::mind_the_silent(Deadline now) {
  if (!crowd_.calm()) hold_until_ = now + kHoldSilent;
  const bool hold = now < hold_until_;
  if (std::exchange(holds_silent_, hold) != hold) hold_silent(socket_.get(), hold);
}

// False if no connection may be accepted for now.
bool Listener::make_room() {
  const Deadline now = Clock::now();
  mind_the_silent(now);
  if (const Deadline rest = crowd_.rests_until(now); rest > now) {
    pause_until(rest, Pause::kForTime);
    return false;
  }
  if (!crowd_.full()) return true;
  auto goes = crowd_.oldest_unheard();
  if (!goes) {
    goes = crowd_.oldest_heard();
    const Deadline had_its_time = goes->begun() + GuestList::kHeardGuestStays;
    if (had_its_time > now) {
      pause_until(had_its_time, Pause::kForRoom);
      return false;
    }
  }
  goes->refuse("it kept others waiting");
  return true;
}

bool Listener::accept_one() {
  sockaddr_storage storage;
  socklen_t bytes = sizeof storage;
  Fd socket(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return bear(errno);
  const Address source(reinterpret_cast<const sockaddr*>(&storage), bytes);
  const auto greeting = std::make_shared<Greeting>(shared_from_this(), std::move(socket), source);
  if (const Status thrown = caught("greeting a connection", [&] { greeting->start(); }); !thrown.ok()) {
    greeting->refuse(thrown.message());
  }
  return true;
}

// Handles a failed accept. True if the next accept may succeed.
bool Listener::bear(int error_number) {
  switch (error_number) {
    case EAGAIN: return false;
    case EINTR:
    case ECONNABORTED:  // these errors belong to the connection, which is gone now
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOPROTOOPT:
    case EOPNOTSUPP: return true;
    default: break;
  }
  // Most likely there are no descriptors or no memory left. The connection waits in the system's queue.
  complain("", "cannot accept connections: " + describe_loss(error_number));
  if (const auto silent = crowd_.oldest_unheard()) {
    silent->refuse("");
    return true;
  }
  pause_until(Clock::now() + kOutOfDescriptorsPause, Pause::kForRoom);
  return false;
}

void Listener::pause_until(Deadline when, Pause why) {
  // Without memory for the timer there is no pause, because nothing would end it.
  const Status thrown = caught("pausing", [&] {
    pause_timer_ = reactor.at(when, [self = shared_from_this()] {
      const std::lock_guard lock(self->mutex_);
      if (self->pause_ != Pause::kNone && self->socket_) self->resume();
    });
  });
  if (!thrown.ok()) return;
  pause_ = why;
  (void)reactor.modify(watch_, 0);
}

void Listener::resume() {
  pause_ = Pause::kNone;
  reactor.cancel(pause_timer_);
  (void)reactor.modify(watch_, EPOLLIN);
}

void Listener::turned_away() {
  crowd_.turned_away(Clock::now());
  made_room();
}

void Listener::made_room() {
  if (pause_ == Pause::kForRoom && socket_) resume();
}

void Listener::complain(const std::string& source, const std::string& what) {
  // Without memory for the line nothing is logged.
  static_cast<void>(caught("complaining", [&] {
    if (const std::string line = of_strangers_.about(source, what); !line.empty()) log(LogLevel::kWarning, line);
  }));
}

void Listener::complain_of_member(const std::string& source, const std::string& what) {
  static_cast<void>(caught("complaining", [&] {
    if (const std::string line = of_members_.about(source, what); !line.empty()) log(LogLevel::kWarning, line);
  }));
}

}  // namespace braid
