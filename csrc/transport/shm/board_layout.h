// SPDX-License-Identifier: Apache-2.0
// The layout of a rank's board: the shared memory in which it posts notices that its peers read in place. Only its
// owner writes to it.
//
//   | BoardHeader | Taken of peer 0 .. n-1 | notices for peer 0 .. n-1 | to the page | bounce buffer |
//
// A notice is one cache line. It has a number, which the reader waits for. It holds a small message itself, or
// says where in the bounce buffer the message lies. The notices for one peer are numbered from 1 and use kNotices
// lines in turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory/segment.h"
#include "transport/shm/layout.h"

namespace braid::shm {

inline constexpr size_t kNotices = 32;      // notices for one peer that are not taken yet, at most
inline constexpr size_t kSignatures = 16;   // a board has the signatures of this many last collectives
inline constexpr size_t kInlineBytes = 40;  // a message up to this size lies in its notice
inline constexpr uint32_t kInline = ~uint32_t{0};
inline constexpr uint32_t kLent = kInline - 1;

struct Notice {
  std::atomic<uint64_t> number;
  uint64_t digest;  // of the collective and the sender's signature in it
  uint32_t bytes;
  uint32_t offset;  // in the bounce buffer, or kInline; or kLent: `message` begins with an address in the sender
  std::byte message[kInlineBytes];
};
static_assert(sizeof(Notice) == kLineBytes);

struct PostedSignature {
  std::atomic<uint64_t> stream;  // kNoStream while being changed
  std::atomic<uint64_t> words[2];
};

struct BoardHeader {
  std::byte segment[Segment::kReservedBytes];
  alignas(kLineBytes) PostedSignature signatures[kSignatures];
};

// The number of the peer's notices that the owner of this board has taken.
struct Taken {
  alignas(kLineBytes) std::atomic<uint64_t> count;
};

// A bounce buffer is used from end to end in turn. In each turn a direct exchange sends a chunk to every peer, so
// the size grows with the ranks. Ranks that share cores share their caches, too, and use less.
inline size_t bounce_bytes_for(int ranks, bool crowded) {
  const size_t per_rank = size_t{crowded ? 128u : 1024u} * 1024;
  return std::bit_ceil(std::clamp(static_cast<size_t>(ranks), size_t{2}, size_t{8})) * per_rank;
}

inline size_t bounce_offset(int ranks) {
  const size_t lines =
      sizeof(BoardHeader) + static_cast<size_t>(ranks) * (sizeof(Taken) + kNotices * sizeof(Notice));
  return (lines + kPageBytes - 1) / kPageBytes * kPageBytes;
}

inline size_t board_bytes(int ranks, size_t bounce_bytes) { return bounce_offset(ranks) + bounce_bytes; }

}  // namespace braid::shm
