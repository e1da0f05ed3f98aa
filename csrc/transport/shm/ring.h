// SPDX-License-Identifier: Apache-2.0
// The two ends of a one-way queue of frames in shared memory. Each end keeps its own count in private memory, and
// checks the other end's count before it uses it. So a faulty peer can break the ring, but not this process.
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

  // Publishes one record. After kFull the reader knows that the writer waits, and rings when it has made room.
  // `reserve` bytes of the ring stay free for later. REQUIRES: payload.size() <= payload_limit().
  Outcome write(const Frame& frame, ConstBytes payload, size_t reserve);
  // After kRefused: the error that says that the machine has no memory for the ring.
  const Status& refusal() const { return refusal_; }

  // Tells the reader that nothing will follow, and that memory that it may be reading (pull(), link.h) is
  // released.
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
  uint64_t read_ = 0;  // the reader's count at the last look
};

class RingReader {
 public:
  explicit RingReader(const Ring& ring) : ring_(ring) {}

  // Sees the records that have been published up to now. False if the writer's count is impossible.
  bool refresh();
  // True if no record that refresh() saw is left.
  bool empty() const { return read_ == written_; }
  // The header of the next record. False if the header is impossible. REQUIRES: !empty().
  bool front(Frame* frame) const;
  // Copies the payload of the next record. REQUIRES: front() returned its header; into.size() == payload_bytes.
  void copy_payload(Bytes into) const;
  // Frees the next record's space. True if the writer waits for room, so that its doorbell must be rung.
  bool pop(const Frame& frame);
  // Call it after the last pop() of a round. Returns the same as pop(), but never misses a waiting writer.
  bool settle();

  // True if the writer will publish no more records. Call it before refresh().
  bool hung_up() const { return ring_.control->hung_up.load(std::memory_order_acquire) != 0; }

 private:
  const Ring ring_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // the writer's count at the last look
  uint64_t noticed_ = 0;  // read_ when the writer was last told
};

}  // namespace braid::shm
