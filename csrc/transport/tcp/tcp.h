// SPDX-License-Identifier: Apache-2.0
// The wire that needs no set-up: TCP between all ranks of a group.
//
// Every rank opens its own connections to a peer when it first has a frame for the peer, and sends its frames on them.
// The peer's frames come on the connections that the peer opened. First both sides prove that they know the group's
// secret. The frames afterwards are neither encrypted nor signed. Connections without a valid proof are closed and
// logged, and affect no group.
//
// The way out: TcpChannel (tcp.cc), TcpLink, Outgoing, SendQueue. The way in: Listener, Greeting, Membership, TcpLink,
// Incoming, then landing() and arrived() of the sink.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/port_range.h"
#include "base/status.h"
#include "transport/channel.h"
#include "transport/reactor.h"
#include "transport/wire.h"

namespace braid {

class Listener;
class Membership;

struct TcpOptions {
  std::string interface;  // interface name or local address to listen on; "": see choose_local_address()
  PortRange ports;        // the ports to listen at; the first free one is taken
  std::string reach;      // a host that all ranks reach, for example the store's; used if `interface` is ""
  // Connections per peer and direction, 1..kMaxTcpConnections. If there are several, the first carries only short
  // frames, so that they never wait behind long ones. Must be equal on all ranks: further connections of a peer are not
  // admitted.
  int connections = 3;
  size_t eager_bytes = 32 * 1024;
  size_t piece_bytes = 512 * 1024;
  milliseconds handshake_timeout{10'000};  // a stranger must prove its membership within this time
  milliseconds peer_timeout{20'000};       // to connect, and for the system to give up on a silent peer; 0: never
};
inline constexpr int kMaxTcpConnections = 16;

// One process's part of one group. Thread safety: all functions from any thread.
class TcpGroup {
 public:
  explicit TcpGroup(std::shared_ptr<Membership> membership);
  ~TcpGroup();  // leaves

  // The channel to `peer`, which listens at `address`. Called once per peer. kInvalidArgument if `address` is none.
  Result<std::unique_ptr<Channel>> channel(Node peer, const std::string& address);
  // The rates of all this group's connections together since the last call, while they were busy. They are the NIC's
  // rate. It is less if the NICs of peers or other traffic limit it. So only a change tells something, and only
  // while the work is the same. 0 after less than about two megabytes.
  NicRates take_rates();
  // Closes all channels and refuses new connections. When this returns, the sink is not touched again. The destructor
  // of the first channel also does this. REQUIRES: the sink's mutex is not held; the sink exists, except if the group
  // was left before.
  void leave();
  // For a process that is about to end, after leave(): waits until the last frames to peers are sent (for example why
  // the group failed). This may include making a connection. Returns at once if there are none.
  void wait_for_last_words(Deadline deadline);

 private:
  const std::shared_ptr<Membership> membership_;
};

// Where this process listens. Serves any number of groups, also several ranks of one group (tests).
// Thread safety: all functions from any thread.
class TcpEndpoint {
 public:
  // Listens on a free port. `reactor` must outlive the endpoint and its groups. kInvalidArgument, with a list of the
  // interfaces, if the interface does not exist.
  static Result<std::shared_ptr<TcpEndpoint>> create(TcpOptions options, Reactor& reactor);
  explicit TcpEndpoint(std::shared_ptr<Listener> listener);
  ~TcpEndpoint();  // stops listening; groups that were joined live on

  // What peers need to connect: "10.0.0.1:4711", "[fe80::1%eth0]:4711".
  std::string address() const;
  // The network interface it listens at, as "eth0 (10.0.0.1)"; only the address if no interface has it.
  std::string place() const;
  // Makes this process `rank` of a group. From now on peers that prove knowledge of `secret` reach `sink`. So call this
  // before the address is published. Frames are handed over when the sink has the peer's channel.
  Result<std::shared_ptr<TcpGroup>> join(const std::string& group, const std::string& secret, Node rank, int ranks,
                                         FrameSink& sink);

 private:
  const std::shared_ptr<Listener> listener_;
};

}  // namespace braid
