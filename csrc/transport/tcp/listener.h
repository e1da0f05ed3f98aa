// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "transport/reactor.h"
#include "transport/tcp/complaints.h"
#include "transport/tcp/guest_list.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp.h"

namespace braid {

class Greeting;

// Accepts connections, and hands each connection that has proved its membership to its group. guest_list.h limits
// the number of strangers at a time. Other connections wait in the system's queue until a stranger is done or
// turned away.
class Listener final : public EventHandler, public std::enable_shared_from_this<Listener> {
 public:
  Listener(TcpOptions options, Reactor& reactor, Fd socket);

  // Immutable.
  const TcpOptions options;
  Reactor& reactor;
  const Address address;

  Status open();
  void close();
  Status enroll(const std::shared_ptr<Membership>& membership);
  void forget(const Membership& membership);

  void on_events(uint32_t events) override;

  // For greetings. All but mutex() REQUIRE the mutex.
  std::mutex& mutex() { return mutex_; }
  std::shared_ptr<Membership> find(const Digest& group, Node rank) const;
  bool was_left(const Digest& group) const;
  GuestList& crowd() { return crowd_; }
  // A stranger's place is free: it was refused (turned_away), or it has become a member (made_room).
  void turned_away();
  void made_room();
  // Logs a warning about this source, at a limited rate (complaints.h). complain_of_member() is for sources that
  // have proved their membership. It has its own limit, so that strangers cannot suppress its lines.
  void complain(const std::string& source, const std::string& what);
  void complain_of_member(const std::string& source, const std::string& what);

 private:
  enum class Pause { kNone, kForRoom, kForTime };

  void pause_until(Deadline when, Pause why);
  void resume();
  void mind_the_silent(Deadline now);
  bool make_room();
  bool accept_one();
  bool bear(int error_number);

  std::mutex mutex_;  // must not be held while a sink's mutex is taken
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  Pause pause_ = Pause::kNone;
  Reactor::Timer pause_timer_;
  GuestList crowd_;
  bool holds_silent_ = false;  // the system keeps silent connections to itself: see hold_silent()
  Deadline hold_until_{};
  std::map<std::pair<Digest, Node>, std::weak_ptr<Membership>> members_;
  std::deque<Digest> left_;  // groups that ended lately: late connections to them cause no warning
  Complaints of_strangers_, of_members_;
};

}  // namespace braid
