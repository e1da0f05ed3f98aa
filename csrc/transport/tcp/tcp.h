// SPDX-License-Identifier: Apache-2.0
// The wire that needs no set-up: TCP between all ranks of a group.
//
// Every rank opens its own connections to a peer, when it first has something for it, and sends its frames on those;
// what the peer sends comes on the connections that the peer opened. Both sides prove that they know the group's
// secret before anything is believed; what travels afterwards is neither encrypted nor signed. Connections that
// prove nothing are closed and logged, and disturb nobody.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/channel.h"
#include "transport/reactor.h"

namespace braid {

class Listener;
class Membership;

struct TcpOptions {
  std::string interface;  // interface name or local address to listen on; "": see choose_local_address()
  std::string reach;      // a host that all ranks reach, say the store's; used when `interface` is ""
  // Per peer and direction, 1..kMaxTcpConnections. Of several the first carries short frames alone, which so never
  // wait behind long ones. The same on all ranks: more of a peer's than this are not admitted.
  int connections = 3;
  size_t eager_bytes = 32 * 1024;
  size_t piece_bytes = 512 * 1024;
  milliseconds handshake_timeout{10'000};  // for a stranger to prove membership
  milliseconds peer_timeout{20'000};       // to connect, and for the system to give up on a silent peer; 0: never
};
inline constexpr int kMaxTcpConnections = 16;

// Bytes per second, headers of TCP and below not counted. 0: not enough was seen.
struct NicRates {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
};

// One process's part of one group. Thread safety: all functions from any thread.
class TcpGroup {
 public:
  explicit TcpGroup(std::shared_ptr<Membership> membership);
  ~TcpGroup();  // leaves

  // The wire to `peer`, who listens at `address`. Once per peer. kInvalidArgument when that is no address.
  Result<std::unique_ptr<Channel>> channel(Node peer, const std::string& address);
  // The rates of all this group's connections since the last call, while they were busy. They are what the NIC
  // passes, or less if something else is slower: the NICs of peers, or other traffic of this NIC. So only changes
  // tell something, while the work is the same. 0 after less than about two megabytes.
  NicRates take_rates();
  // Closes all channels and refuses new connections; the sink is not touched any more once this returns. Also
  // happens when the first channel is destroyed. REQUIRES: the sink's mutex is not held, and the sink still lives
  // unless this has happened already.
  void leave();
  // After leave(), for a process that is about to end: until peers have been sent all that was to be said (why the
  // group failed, say), which may take until a connection is made. At once when there is nothing.
  void wait_for_last_words(Deadline deadline);

 private:
  const std::shared_ptr<Membership> membership_;
};

// Where this process listens. Serves any number of groups, also several ranks of one group (tests).
// Thread safety: all functions from any thread.
class TcpEndpoint {
 public:
  // Listens on a free port. `reactor` must outlive the endpoint and its groups. kInvalidArgument for an interface
  // that does not exist names those that do.
  static Result<std::shared_ptr<TcpEndpoint>> create(TcpOptions options, Reactor& reactor);
  explicit TcpEndpoint(std::shared_ptr<Listener> listener);
  ~TcpEndpoint();  // stops listening; groups that were joined live on

  // What peers need to connect: "10.0.0.1:4711", "[fe80::1%eth0]:4711".
  std::string address() const;
  // Makes this process `rank` of a group. Peers that prove knowledge of `secret` reach `sink` from now on; so this
  // comes before the address is published. Frames are handed over once the sink has the peer's channel.
  Result<std::shared_ptr<TcpGroup>> join(const std::string& group, const std::string& secret, Node rank, int ranks,
                                         FrameSink& sink);

 private:
  const std::shared_ptr<Listener> listener_;
};

}  // namespace braid
