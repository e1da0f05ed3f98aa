// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/reactor.h"
#include "transport/tcp/socket.h"

namespace braid {

class Membership;

// A connection that a peer opened and authenticated. Hands its frames to the sink, on the reactor's thread.
// Everything is guarded by the sink's mutex.
class Incoming final : public EventHandler, public std::enable_shared_from_this<Incoming> {
 public:
  Incoming(std::shared_ptr<Membership> group, Node peer, uint32_t index, Fd socket);

  // Begins to read. REQUIRES: the sink knows the peer's channel.
  void watch();
  // Tells the peer that this rank leaves in good order. After the handshake this is the only byte in this
  // direction.
  void say_farewell();
  // Stops, and returns the socket to the caller.
  Fd close();

  // True if no more frames will come. Then the link was told the reason.
  bool ended() const { return ended_; }
  uint32_t index() const { return index_; }
  std::string source() const;  // the address it comes from
  void on_events(uint32_t events) override;

 private:
  bool open() const { return static_cast<bool>(socket_) && !ended_; }
  void read_slice();
  void take_buffered();
  bool begin_frame();
  void stop();

  const std::shared_ptr<Membership> group_;
  const Node peer_;
  const uint32_t index_;
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  bool ended_ = false;

  Frame frame_;
  bool in_frame_ = false;
  size_t frames_left_ = 0;  // in the current slice
  Bytes into_;              // the memory for the rest of the frame's payload
  // Reads ahead: headers, and payloads so small that a system call of their own would cost more than a copy.
  std::array<std::byte, 4096> buffer_;
  size_t buffered_begin_ = 0;
  size_t buffered_end_ = 0;
};

}  // namespace braid
