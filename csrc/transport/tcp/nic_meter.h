// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "transport/tcp/rate_meter.h"
#include "transport/tcp/tcp.h"

namespace braid {

class Membership;

// Measures the rates of all connections of a group together while they are busy. Looks every few milliseconds
// while anything moves, on the reactor's thread; not at all while nothing moves. Every call REQUIRES the sink's
// mutex.
//
// Out: a connection is busy while the system or our queue holds bytes that the peer has not acknowledged. Only
// acknowledged bytes count as passed: bytes that the system has taken may still wait.
// In: the connections are busy while bytes come and the sink awaits more.
class NicMeter {
 public:
  explicit NicMeter(Membership& group) : group_(group) {}

  // Count the bytes that a connection has written or read.
  void wrote(size_t bytes) { stir(bytes); }
  void read(size_t bytes) {
    read_bytes_ += bytes;
    stir(bytes);
  }
  NicRates take() { return {up_.take(), down_.take()}; }

 private:
  void stir(size_t bytes) {
    moved_bytes_ += bytes;
    if (!running_) start();
  }
  void start();
  void look_later();
  void look();

  Membership& group_;
  RateMeter up_, down_;
  uint64_t moved_bytes_ = 0;  // since the last look, or since nothing moved
  uint64_t read_bytes_ = 0;   // since the last look
  bool running_ = false;
  int quiet_looks_ = 0;
  // As of the last look.
  Clock::time_point looked_at_;
  bool more_out_ = false;
  bool more_in_ = false;
};

}  // namespace braid
