// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>

#include "transport/reactor.h"
#include "transport/tcp/address.h"
#include "transport/tcp/guest_list.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/socket.h"

namespace braid {

class Listener;
class Membership;

// A connection from a stranger, who has not yet proved its membership. Guarded by the listener's mutex. An
// exception in its code ends this one connection.
class Greeting final : public EventHandler, public std::enable_shared_from_this<Greeting> {
 public:
  Greeting(std::shared_ptr<Listener> listener, Fd socket, const Address& source);

  // All functions except on_events() REQUIRE the listener's mutex.
  // Enters the guest list, and reads the bytes that have already arrived.
  void start();
  void refuse(const std::string& why);
  void close();
  Deadline begun() const { return begun_; }

  void on_events(uint32_t events) override;

 private:
  void greet();
  bool proceed();
  bool receive();
  std::shared_ptr<Membership> check_opening();
  bool challenge();
  void leave_crowd();

  const std::shared_ptr<Listener> listener_;
  const Address source_;
  const Deadline begun_ = Clock::now();
  GuestList::Place place_;
  bool in_crowd_ = false;
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  Reactor::Timer deadline_;
  bool challenged_ = false;
  bool was_heard_ = false;
  Challenge challenge_;
  Claim claim_;
  std::array<std::byte, sizeof(Claim) + 1> received_;  // one byte more, to detect that too much was sent
  size_t received_bytes_ = 0;
};

}  // namespace braid
