// SPDX-License-Identifier: Apache-2.0
// The layout of a rank's group segment. The rank owns the segment and reads it. Peer p writes only to ring p, and
// to its side of that ring's control block.
//
//   | GroupHeader | RingControl of peer 0 | ... of peer n-1 | to the page | ring 0 | ring 1 | ... | ring n-1 |
//
// A ring holds records, each beginning on a multiple of 64: a Frame and its payload, wrapping at the ring's end. A
// payload of up to 8 bytes shares the Frame's cache line, a larger one begins on the next line: some CPUs copy
// several times slower between addresses that differ by a few bytes modulo a page. Pages of rings that are never
// used are never touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/segment.h"
#include "transport/frame.h"

namespace braid::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kSmallestRing = kPageBytes;
inline constexpr size_t kLargestRing = size_t{1} << 30;

inline constexpr uint64_t kNoStream = ~uint64_t{0};

struct GroupHeader {
  std::byte segment[Segment::kReservedBytes];
  alignas(kLineBytes) std::atomic<uint64_t> stream;  // the stream that the rank began last, or kNoStream
};

// Counts are bytes since the beginning; the position in the ring is the count modulo its size.
struct RingControl {
  // The writer's line.
  alignas(kLineBytes) std::atomic<uint64_t> written;
  std::atomic<uint32_t> hung_up;  // the writer will never write again
  // The reader's line; the writer stores to `writer_waits` only when the ring is full.
  alignas(kLineBytes) std::atomic<uint64_t> read;
  std::atomic<uint32_t> writer_waits;  // the reader must ring the writer's doorbell when it frees space
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct Ring {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  size_t bytes = 0;  // a power of two
};

inline size_t payload_offset(size_t payload_bytes) {
  return payload_bytes <= kLineBytes - sizeof(Frame) ? sizeof(Frame) : kLineBytes;
}

inline size_t record_bytes(size_t payload_bytes) {
  return (payload_offset(payload_bytes) + payload_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// The largest payload of one record: four records always fit into a ring.
inline size_t payload_limit(size_t ring_bytes) { return ring_bytes / 4 - kLineBytes; }

inline bool is_ring_size(size_t bytes) {
  return bytes >= kSmallestRing && bytes <= kLargestRing && (bytes & (bytes - 1)) == 0;
}

inline size_t rings_offset(int ranks) {
  const size_t controls = sizeof(GroupHeader) + static_cast<size_t>(ranks) * sizeof(RingControl);
  return (controls + kPageBytes - 1) / kPageBytes * kPageBytes;
}

inline size_t group_bytes(int ranks, size_t ring_bytes) {
  return rings_offset(ranks) + static_cast<size_t>(ranks) * ring_bytes;
}

inline GroupHeader& header_of(const Segment& segment) { return *reinterpret_cast<GroupHeader*>(segment.data()); }

// The ring in the group segment that `writer` writes to. REQUIRES: the segment has group_bytes(ranks, ring_bytes).
inline Ring ring_of(const Segment& segment, int ranks, size_t ring_bytes, Node writer) {
  const auto index = static_cast<size_t>(writer);
  auto* controls = reinterpret_cast<RingControl*>(segment.data() + sizeof(GroupHeader));
  return {controls + index, segment.data() + rings_offset(ranks) + index * ring_bytes, ring_bytes};
}

}  // namespace braid::shm
