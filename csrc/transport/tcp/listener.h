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

// Accepts connections and hands those that have proved their membership to their group. So many strangers are talked
// to at a time (guest_list.h); the others wait in the system's queue until one is through or has had its time.
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

  // For greetings, who hold the mutex.
  std::mutex& mutex() { return mutex_; }
  std::shared_ptr<Membership> find(const Digest& group, Node rank) const;
  bool was_left(const Digest& group) const;
  GuestList& crowd() { return crowd_; }
  // A stranger's place is free: it was refused, or has become a member's.
  void turned_away();
  void made_room();
  // A warning, once in a while, that something is wrong with this source; or with one who has proved its membership,
  // which is not drowned by what strangers do.
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

  std::mutex mutex_;  // may not be held while a sink's mutex is taken
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  Pause pause_ = Pause::kNone;
  Reactor::Timer pause_timer_;
  GuestList crowd_;
  bool holds_silent_ = false;  // the system does
  Deadline hold_until_{};
  std::map<std::pair<Digest, Node>, std::weak_ptr<Membership>> members_;
  std::deque<Digest> left_;  // groups left lately: latecomers are no reason to worry anybody
  Complaints of_strangers_, of_members_;
};

}  // namespace braid
