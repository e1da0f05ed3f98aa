// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/tcp/address.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/socket.h"

namespace braid {

class Incoming;
class Membership;
class Outgoing;

// All connections between this rank and one peer. Every call REQUIRES the sink's mutex.
class TcpLink {
 public:
  TcpLink(Membership& group, Node peer);
  ~TcpLink();

  // What the channel forwards.
  Status set_address(const std::string& address);
  void attached();
  void post(const Frame& frame, ConstBytes payload, Request* request);
  bool poll();
  void prepare();
  void pace(double bytes_per_s);
  bool connected() const { return !outgoing_.empty() || !incoming_.empty(); }
  void close();

  // From connections, on any thread that holds the mutex.
  // Is there a place for a connection of this index? kInvalidArgument: one holds it. An honest peer opens another only
  // when the first was cut before it heard of its admission, and such a cut loses the peer anyway.
  Status has_place(uint32_t index) const;
  // A connection that the peer opened, and has proved to own. REQUIRES: has_place()
  Status admit(uint32_t index, Fd socket, const Digest& proof);
  // The peer is lost: reported once, from the reactor's thread, after everything that had arrived.
  void fail(const std::string& what);
  void fail(Status why);
  // The same for the end of a connection, 0, or an error of the system's. What the peer had sent over others before it
  // closed them all may still be on its way.
  void lose_connection(int error_number);
  // More has arrived.
  void stirred();

  // Whether anything came from the peer since the last call, or it has read what was sent.
  bool heard();
  // Of all connections to the peer, since the last call.
  Passage passage();

  const Address& address() const { return *address_; }

 private:
  enum class State { kOpen, kFailing, kEnded };

  void connect();
  void look_again();
  void lose_when_drained();
  void end();
  Outgoing& way_for(const Frame& frame);

  Membership& group_;
  const Node peer_;
  std::optional<Address> address_;
  bool attached_ = false;  // the sink knows the channel, so frames may be handed over
  State state_ = State::kOpen;
  Status why_;
  double pace_bytes_per_s_ = 0;
  Deadline lose_at_ = kNoDeadline;  // while failing: even if connections are not at their end
  bool hung_up_ = false;            // and that was not for anything wrong
  bool heard_ = false;
  uint64_t acknowledged_bytes_ = 0;  // when the peer was last seen to read
  std::vector<std::shared_ptr<Outgoing>> outgoing_;
  std::vector<std::shared_ptr<Incoming>> incoming_;
};

}  // namespace braid
