// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "transport/reactor.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp.h"

namespace braid {

class Greeting;

// Accepts connections and hands those that have proved their membership to their group. At most kMaxGreetings
// strangers are talked to at a time; the others wait in the system's queue until one is through or has had its time.
class Listener final : public EventHandler, public std::enable_shared_from_this<Listener> {
 public:
  static constexpr size_t kMaxGreetings = 64;

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
  void done(const std::shared_ptr<Greeting>& greeting);
  // A warning, the first time something is wrong with this source.
  void complain(const std::string& source, const std::string& what);

 private:
  void pause_until(Deadline when);
  void resume();
  bool accept_one();

  std::mutex mutex_;  // may not be held while a sink's mutex is taken
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  bool paused_ = false;
  Reactor::Timer pause_timer_;
  std::list<std::shared_ptr<Greeting>> greetings_;  // oldest first
  std::map<std::pair<Digest, Node>, std::weak_ptr<Membership>> members_;
  std::deque<Digest> left_;  // groups left lately: latecomers are no reason to worry anybody
  std::set<std::string> known_sources_;
};

}  // namespace braid
