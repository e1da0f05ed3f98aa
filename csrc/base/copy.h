// SPDX-License-Identifier: Apache-2.0
// memcpy for large blocks, at a steady speed. glibc's memcpy copies large blocks with `rep movsb`. On Zen 3 this
// falls to a tenth of its speed if source and target differ by a few bytes modulo a page: 2 GB/s instead of 30.
// This happens whenever one is a NumPy array, which begins 16 bytes into a page, and the other is page-aligned
// memory of braid.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace braid {

// The memory must not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  typedef long long Vector __attribute__((vector_size(16)));
  const auto load = [](const std::byte* address) {
    Vector vector;
    std::memcpy(&vector, address, sizeof vector);  // one instruction, at any alignment
    return vector;
  };
  const auto store = [](std::byte* address, Vector vector) { std::memcpy(address, &vector, sizeof vector); };
  size_t at = 0;
  if (bytes >= 1024) {
    for (; at + 64 <= bytes; at += 64) {
      const Vector a = load(from + at), b = load(from + at + 16), c = load(from + at + 32),
                   d = load(from + at + 48);
      store(to + at, a);
      store(to + at + 16, b);
      store(to + at + 32, c);
      store(to + at + 48, d);
    }
  }
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
}

// The same, past the caches: for a target larger than the caches, whose old content nobody reads. Saves reading
// its lines before they are overwritten. Other threads see the bytes after end_of_stream().
inline void stream_bytes(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  const size_t odd = (16 - reinterpret_cast<uintptr_t>(to) % 16) % 16;
  if (bytes >= 1024) {
    std::memcpy(to, from, odd);
    size_t at = odd;
    for (; at + 64 <= bytes; at += 64) {
      const auto* source = reinterpret_cast<const __m128i*>(from + at);
      auto* target = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + at, from + at, bytes - at);
    return;
  }
#endif
  copy_bytes(to, from, bytes);
}

inline void end_of_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace braid
