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

  // The channel forwards these calls.
  Status set_address(const std::string& address);
  void attached();
  void post(const Frame& frame, ConstBytes payload, Request* request);
  bool poll();
  void prepare();
  void pace(double bytes_per_s);
  bool connected() const { return !outgoing_.empty() || !incoming_.empty(); }
  void close();

  // Connections call these, on any thread that holds the mutex.
  // Ok if the link has no connection of this index. kInvalidArgument if another connection holds the index. An
  // honest peer opens a second one only if the first was cut before the peer knew of its admission. Such a cut
  // loses the peer anyway.
  Status has_place(uint32_t index) const;
  // Takes a connection that the peer opened and authenticated. REQUIRES: has_place() is ok.
  Status admit(uint32_t index, Fd socket, const Digest& proof);
  // The peer is lost. The sink is told once, from the reactor's thread, after all frames that had arrived.
  void fail(const std::string& what);
  void fail(Status why);
  // The same for the end of a connection (error_number 0) or a system error. Frames that the peer sent over other
  // connections before it closed them all may still be under way.
  void lose_connection(int error_number);
  // More bytes have arrived.
  void stirred();

  // True if, since the last call, bytes came from the peer, or the peer has read bytes that were sent.
  bool heard();
  // The passage of all connections to the peer since the last call.
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
  Deadline lose_at_ = kNoDeadline;  // while failing: the peer is lost then, even if connections have not ended
  bool hung_up_ = false;            // the peer closed a connection, without an error
  bool heard_ = false;
  uint64_t acknowledged_bytes_ = 0;  // when the peer was last seen to read
  std::vector<std::shared_ptr<Outgoing>> outgoing_;
  std::vector<std::shared_ptr<Incoming>> incoming_;
};

}  // namespace braid
