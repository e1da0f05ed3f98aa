// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/caught.h"
#include "base/clock.h"
#include "transport/reactor.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/nic_meter.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_link.h"

namespace braid {

// One rank's membership in one group: the state that its links and connections share. It is also the gate that
// keeps the reactor's thread from a destroyed sink. The connections' handlers keep it alive.
class Membership : public std::enable_shared_from_this<Membership> {
 public:
  Membership(std::shared_ptr<Listener> listener, TcpOptions options, Reactor& reactor, const Digest& group,
             std::string secret, Node rank, int ranks, FrameSink& sink);
  ~Membership();

  // Immutable.
  const TcpOptions options;
  Reactor& reactor;
  const Digest group;
  const std::string secret;
  const Node rank;
  const int ranks;
  const ChannelTraits traits;

  // REQUIRES: the gate is open and the mutex is held, as for all functions of a link.
  FrameSink& sink() { return sink_; }
  TcpLink& link(Node peer) { return *links_[static_cast<size_t>(peer)]; }
  NicMeter& meter() { return meter_; }
  std::mutex& mutex() { return mutex_; }

  // For callbacks: locks the sink's mutex. Returns an empty lock if the group was left, because the sink may be
  // gone.
  std::unique_lock<std::mutex> enter();
  // Runs body() in a callback under the sink's mutex, unless the group was left. An exception of body() fails the
  // group.
  template <class Body>
  void guarded(const char* doing, Body&& body) {
    const auto lock = enter();
    if (!lock) return;
    if (const Status thrown = caught(doing, body); !thrown.ok()) sink_.broke(thrown);
  }
  // Called on the reactor's thread: takes an accepted connection that has proved its rank. An error says why it is
  // refused.
  Status admit(const Challenge& challenge, const Opening& opening, Fd socket);
  // See TcpGroup.
  void leave();
  void wait_for_last_words(Deadline deadline);
  // Count the connections that outlive their link because frames are still to be sent. Called from any thread.
  void begin_farewell();
  void end_farewell();

 private:
  const std::shared_ptr<Listener> listener_;
  FrameSink& sink_;
  std::mutex& mutex_;  // the sink's
  std::atomic<bool> open_{true};
  std::vector<std::unique_ptr<TcpLink>> links_;
  NicMeter meter_{*this};
  std::mutex farewell_mutex_;
  std::condition_variable farewell_ended_;
  int farewells_ = 0;
};

}  // namespace braid
