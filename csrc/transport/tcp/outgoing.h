// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/reactor.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/socket.h"

namespace braid {

class Membership;

// A connection that this rank opened to a peer: connects, proves who it is, then carries frames out.
//
// Everything is guarded by the sink's mutex until detach(). From then on the object belongs to the reactor's
// thread alone, touches neither sink nor link, and closes itself when its last frames are out.
class Outgoing final : public EventHandler, public std::enable_shared_from_this<Outgoing> {
 public:
  Outgoing(std::shared_ptr<Membership> group, Node peer, uint32_t index);

  void start();
  void post(const Frame& frame, ConstBytes payload, Request* request);
  // Writes a slice of the queue; true if anything moved.
  bool poll();
  // Limits the rate to so many bytes per second; 0: no limit.
  void pace(double bytes_per_s);
  void close();
  // The link is closed. Drops frames that have a request, sends the rest, and closes `companions` after that. If
  // this throws, call close() instead.
  void detach(std::vector<Fd> companions);

  bool ready() const { return state_ == State::kReady; }
  size_t queued_bytes() const { return queue_.bytes(); }
  // The passage since the last call.
  Passage passage();
  // All bytes that the peer has acknowledged so far.
  uint64_t acknowledged_bytes() const;

  void on_events(uint32_t events) override;

 private:
  enum class State { kIdle, kConnecting, kChallenge, kProof, kReady, kClosed };

  template <class Body>
  void guarded(Body body);
  void connect();
  void proceed(uint32_t events);
  bool receive(size_t wanted_bytes);
  void send_opening();
  void on_challenge();
  void on_proof();
  void check_for_end();
  void flush();
  bool flush_slice();
  void flush_soon();
  void retry(const std::string& what);
  void lose(const std::string& what);
  void lose_connection(int error_number);

  const std::shared_ptr<Membership> group_;
  const Node peer_;
  const uint32_t index_;
  std::atomic<bool> detached_{false};

  State state_ = State::kIdle;
  Fd socket_;
  Reactor::WatchId watch_ = 0;
  Reactor::Timer retry_timer_;
  Reactor::Timer deadline_;
  size_t attempts_ = 0;       // failed attempts that count against the peer
  size_t turned_away_ = 0;    // failed attempts that do not
  std::string last_trouble_;  // why the last attempt failed
  Opening opening_;
  std::array<std::byte, sizeof(Challenge)> received_;  // of the handshake; a proof is as long as a challenge
  size_t received_bytes_ = 0;
  Digest expected_proof_{};
  Digest expected_refusal_{};

  SendQueue queue_;
  double pace_bytes_per_s_ = 0;
  bool writable_ = false;  // as of the last write
  bool flush_queued_ = false;
  uint64_t written_bytes_ = 0;
  uint64_t unpassed_bytes_ = 0;  // written, and not acknowledged as of the last passage()
  size_t direct_bytes_ = 0;      // written by post() since others had the mutex
  std::vector<Request*> finished_;
  std::vector<Fd> companions_;
};

}  // namespace braid
