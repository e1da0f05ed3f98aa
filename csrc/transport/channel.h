// SPDX-License-Identifier: Apache-2.0
// The interface of a channel: what carries the frames of one group to one peer and back. Each kind of wire (wire.h)
// has a class of channels; so has loopback. The contract suite (tests/cpp/transport) runs on every one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/span.h"
#include "base/status.h"
#include "transport/frame.h"

namespace braid {

// One pending send or receive. The caller that started it owns it, and keeps it at a fixed address until done() is
// true.
class Request {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done().
  const Status& status() const { return status_; }

  void start() {
    status_ = Status();
    done_.store(false, std::memory_order_relaxed);
  }
  // After this call the request may already be gone.
  void finish(Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> done_{true};
  Status status_;
};

// What channels report to: the group's mailbox. Every call REQUIRES mutex() to be held by the caller.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // One lock for the whole group: channels, their queues and the mailbox.
  virtual std::mutex& mutex() = 0;
  // Returns the memory for the payload of an arriving frame: exactly frame.payload_bytes. It is valid until
  // arrived(), or until the mutex is released and taken again and the mailbox has failed meanwhile. No other frame
  // gets the same memory in that time, even if a channel with several connections has several frames arriving. An
  // error means that the frame breaks the protocol: the channel must report the peer lost.
  virtual Result<Bytes> landing(Node from, const Frame& frame) = 0;
  // The frame is complete and its payload in place.
  virtual void arrived(Node from, const Frame& frame) = 0;
  // The payload of a posted frame has left; `request` is the request that was passed to post().
  virtual void written(Request* request) = 0;
  // True if at least `bytes` of requested data are still due from peers through this host's NIC.
  virtual bool awaits(size_t bytes) const = 0;
  // Nothing more will come from this peer and nothing more can go there.
  virtual void lost(Node peer, Status why) = 0;
  // The channel cannot go on in this process, for example for lack of memory: the group fails.
  virtual void broke(const Status& why) = 0;
};

struct ChannelTraits {
  size_t eager_bytes = 0;   // a message up to this size goes as one kMessage frame
  size_t piece_bytes = 0;   // payload limit of one kPiece frame
  bool peer_reads = false;  // the peer can read this process's memory: large messages go as kOffer
  bool reads_peer = false;  // this process can read the peer's memory: pull() works
  bool has_nic = false;     // the wire goes through this host's NIC, shared with other peers
};

class Channel {
 public:
  virtual ~Channel() = default;

  virtual const ChannelTraits& traits() const = 0;

  // All calls below REQUIRE the sink's mutex to be held. The sink may call post() and close() of this very channel
  // from inside landing(), arrived() and lost().

  // The sink knows this channel now, so frames may be handed to the sink. Called once, before all other calls.
  // Frames that the peer sent earlier wait until then.
  virtual void attached() {}
  // Sends one frame, after all frames posted before it. Writes at once as much as fits and queues the rest.
  // `payload` stays valid until sink.written(request) is called (from inside post() if the frame fits). Without a
  // request the payload is copied. A wire with several connections keeps the order only among frames without a
  // payload.
  virtual void post(const Frame& frame, ConstBytes payload, Request* request) = 0;
  // Moves queued frames out and hands arrived frames to the sink, without blocking. True if anything moved.
  virtual bool poll() = 0;
  // Reads `into.size()` bytes at `address` of the peer's memory. REQUIRES: traits().reads_peer.
  virtual Status pull(uint64_t address, Bytes into) = 0;
  // A message to or from this peer has been started. A wire that connects late begins to connect here, so that a
  // receive from a dead peer fails soon.
  virtual void prepare() {}
  // True if there is a connection in either direction. Then the peer may wait for us, even if we have not heard
  // so.
  virtual bool connected() { return true; }
  // From now on sends at most this many bytes of large messages per second, so that they do not queue up in this
  // host before urgent frames. 0: no limit. Wires without a NIC need no limit.
  virtual void pace(double /*bytes_per_s*/) {}
  // The stream that the peer began last, if the wire can tell without the peer's help.
  virtual std::optional<uint64_t> peer_stream() { return std::nullopt; }
  // True if the peer has shown since the last call that its process runs. A peer behind a NIC shows it when a kAsk
  // asks; other peers show it unasked. Wires that cannot tell return true.
  virtual bool heard() { return true; }
  // Stops, even without memory. Drops queued frames that have a request. Touches no payload and not the sink after
  // it returns. Finishes a half-written frame from a copy. Queued frames without a request (a kFail, a kLeave)
  // still go out after it if the wire can send them without blocking.
  virtual void close() = 0;
};

}  // namespace braid
