// SPDX-License-Identifier: Apache-2.0
// Wires between mailboxes of one process: for tests, where ranks are threads. Frames are copied through queues.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/channel.h"
#include "transport/doorbell.h"
#include "transport/loopback/delay_line.h"

namespace braid {

struct LoopbackOptions {
  size_t eager_bytes = 1024;
  size_t piece_bytes = 16 * 1024;
  bool read_peers = false;             // single copy: large messages are read out of the sender's memory
  bool has_nic = false;                // as a wire to another host: large messages are received on credit
  std::chrono::microseconds delay{0};  // latency of every frame, each way; single copies have none
};

// The switch that joins the ranks of one group. Outlives the channels.
class LoopbackHub {
 public:
  LoopbackHub(int ranks, LoopbackOptions options);

  // The wire of `rank` to `peer`; `sink` and `bell` belong to `rank`.
  std::unique_ptr<Channel> channel(Node rank, Node peer, FrameSink& sink, DoorbellWord& bell);
  // Acts as if the rank's process died: its peers lose it after all frames that it had sent.
  void kill(Node rank);

 private:
  friend class LoopbackChannel;
  struct Packet {
    Frame frame;
    std::vector<std::byte> payload;
  };
  struct Queue {  // one direction of one pair
    std::mutex mutex;
    std::deque<Packet> packets;
    bool closed = false;
    DoorbellWord* reader_bell = nullptr;
  };

  Queue& queue(Node from, Node to) { return *queues_[static_cast<size_t>(from * ranks_ + to)]; }

  const int ranks_;
  const ChannelTraits traits_;
  std::vector<std::unique_ptr<Queue>> queues_;
  DelayLine line_;  // declared after the queues, because it delivers into them
};

}  // namespace braid
