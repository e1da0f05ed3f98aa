// SPDX-License-Identifier: Apache-2.0
// The two ends of a one-way queue of frames in shared memory. Each end keeps its own count privately and believes
// the other's only after checking it: a peer gone wild can break the ring, but not this process.
//
// Thread safety: none; each end is used under its group's mutex.
#pragma once

#include "base/span.h"
#include "base/status.h"
#include "memory/reserve.h"
#include "transport/frame.h"
#include "transport/shm/layout.h"

namespace braid::shm {

class RingWriter {
 public:
  enum class Outcome { kWritten, kFull, kBroken, kRefused };

  explicit RingWriter(const Ring& ring) : ring_(ring), memory_(ring.data, ring.bytes) {}

  size_t payload_limit() const { return shm::payload_limit(ring_.bytes); }

  // Publishes one record. With kFull the reader knows that we wait and will ring when it has made room. `reserve`
  // bytes of the ring stay free for later. REQUIRES: payload.size() <= payload_limit().
  Outcome write(const Frame& frame, ConstBytes payload, size_t reserve);
  // Why the machine has no memory for the ring, after kRefused.
  const Status& refusal() const { return refusal_; }

  // Tells the reader that nothing will follow, and that memory it may be reading (pull(), link.h) is given back.
  void hang_up() {
    ring_.control->hung_up.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before anybody writes to that memory
  }

 private:
  void copy_in(uint64_t at, ConstBytes payload);
  bool has_room(size_t bytes) const { return ring_.bytes - (written_ - read_) >= bytes; }
  bool plausible() const { return written_ - read_ <= ring_.bytes && read_ % kLineBytes == 0; }

  const Ring ring_;
  ReservedPrefix memory_;
  Status refusal_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // the reader's count when last looked at
};

class RingReader {
 public:
  explicit RingReader(const Ring& ring) : ring_(ring) {}

  // Sees what has been published up to now. False when the writer's count makes no sense.
  bool refresh();
  // Nothing left of what refresh() saw.
  bool empty() const { return read_ == written_; }
  // The header of the next record. False when it makes no sense. REQUIRES: !empty().
  bool front(Frame* frame) const;
  // Copies the payload of the next record, whose header front() gave. REQUIRES: into.size() == payload_bytes.
  void copy_payload(Bytes into) const;
  // Frees the next record's space. True when the writer waits for room and its doorbell is due.
  bool pop(const Frame& frame);
  // To be called after the last pop() of a round: true as for pop(), but misses no waiting writer.
  bool settle();

  // What was published before is all there will ever be. To be asked before refresh().
  bool hung_up() const { return ring_.control->hung_up.load(std::memory_order_acquire) != 0; }

 private:
  const Ring ring_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // the writer's count when last looked at
  uint64_t noticed_ = 0;  // read_ when the writer was last told
};

}  // namespace braid::shm
