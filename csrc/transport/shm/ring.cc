// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "base/copy.h"

namespace braid::shm {

RingWriter::Outcome RingWriter::write(const Frame& frame, ConstBytes payload, size_t reserve) {
  RingControl& control = *ring_.control;
  const size_t bytes = record_bytes(payload.size());
  if (!has_room(bytes + reserve)) {
    // Acquire: the reader has copied out all bytes that it counts as read, so they may be overwritten.
    read_ = control.read.load(std::memory_order_acquire);
    if (!plausible()) return Outcome::kBroken;
    if (!has_room(bytes + reserve)) {
      // Sequentially consistent with RingReader::settle(): either we see its count, or it sees that we wait. If
      // the flag is still set, the reader has not answered yet, and its answer will ring our doorbell.
      if (control.writer_waits.load(std::memory_order_relaxed) == 0) {
        control.writer_waits.store(1, std::memory_order_seq_cst);
      }
      read_ = control.read.load(std::memory_order_seq_cst);
      if (!plausible()) return Outcome::kBroken;
      if (!has_room(bytes + reserve)) return Outcome::kFull;
    }
  }
  if (const size_t used = std::min<uint64_t>(written_ + bytes, ring_.bytes); !memory_.holds(used)) {
    refusal_ = memory_.grow_to(used);
    if (!refusal_.ok()) return Outcome::kRefused;
  }
  std::memcpy(ring_.data + (written_ & (ring_.bytes - 1)), &frame, sizeof frame);
  if (!payload.empty()) copy_in(written_ + payload_offset(payload.size()), payload);
  written_ += bytes;
  // Release: a reader that sees the count also sees the record.
  control.written.store(written_, std::memory_order_release);
  return Outcome::kWritten;
}

void RingWriter::copy_in(uint64_t at, ConstBytes payload) {
  const size_t position = at & (ring_.bytes - 1);
  const size_t first = std::min(payload.size(), ring_.bytes - position);
  copy_bytes(ring_.data + position, payload.data(), first);
  copy_bytes(ring_.data, payload.data() + first, payload.size() - first);
}

bool RingReader::refresh() {
  written_ = ring_.control->written.load(std::memory_order_acquire);
  return written_ - read_ <= ring_.bytes && written_ % kLineBytes == 0;
}

bool RingReader::front(Frame* frame) const {
  std::memcpy(frame, ring_.data + (read_ & (ring_.bytes - 1)), sizeof *frame);
  return frame->payload_bytes <= ring_.bytes && record_bytes(frame->payload_bytes) <= written_ - read_;
}

void RingReader::copy_payload(Bytes into) const {
  if (into.empty()) return;
  const size_t position = (read_ + payload_offset(into.size())) & (ring_.bytes - 1);
  const size_t first = std::min(into.size(), ring_.bytes - position);
  copy_bytes(into.data(), ring_.data + position, first);
  copy_bytes(into.data() + first, ring_.data, into.size() - first);
}

bool RingReader::pop(const Frame& frame) {
  RingControl& control = *ring_.control;
  read_ += record_bytes(frame.payload_bytes);
  // Release: our copy is complete before the writer may overwrite the record.
  control.read.store(read_, std::memory_order_release);
  // A writer is woken for a quarter of a ring, not for every record. settle() sees a writer that this check
  // misses.
  if (read_ - noticed_ < ring_.bytes / 4 || control.writer_waits.load(std::memory_order_relaxed) == 0)
    return false;
  noticed_ = read_;
  return control.writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

bool RingReader::settle() {
  RingControl& control = *ring_.control;
  // Stored once more, sequentially consistent: see RingWriter::write().
  control.read.store(read_, std::memory_order_seq_cst);
  if (control.writer_waits.load(std::memory_order_seq_cst) == 0) return false;
  noticed_ = read_;
  return control.writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace braid::shm
