// SPDX-License-Identifier: Apache-2.0
// Messages made and read a tile at a time, under PlainFloats of the caller's (base/float_environment.h), for those
// who bring the floats together, or put them away, while they are in the cache: codec.h and the fused bucket.
#pragma once

#include <optional>

#include "codec/layout.h"
#include "codec/sparse.h"

namespace braid {

// A multiple of every codec's block, small enough for the first-level cache.
inline constexpr size_t kTileElements = 4096;

class Encoder {
 public:
  // As encode(); `left` is null or gets what the message lacks, `elements` floats.
  Encoder(const Codec& codec, size_t elements, uint32_t seed, float* left, Bytes out);

  // Adds the next n values: kTileElements, except in the last tile. `values` may be the memory of their `left`.
  void put(const float* values, size_t n) { put_sums(values, 1, nullptr, n); }
  // The next n are values[i] * scale + addend[i]; each may be where their `left` is, and `addend` null.
  void put_sums(const float* values, float scale, const float* addend, size_t n);
  // Called after the last put. Only then the message and `left` of top-k are complete.
  void finish();

 private:
  void put_sparse(const Terms& terms, size_t n, float* left);

  const Codec codec_;
  const MessageLayout layout_;
  const size_t elements_;
  const uint32_t seed_;
  float* const left_;
  const Bytes out_;
  size_t done_ = 0;
  size_t entry_ = 0;                           // random_k: the next
  size_t odd_entry_ = ~size_t{0};              // random_k: the last in whose stretch something was not finite
  std::optional<LargestSelection> selection_;  // top_k
};

class Decoder {
 public:
  // kInvalidArgument as decode().
  static Result<Decoder> open(const Codec& codec, ConstBytes message, size_t elements);

  // The next n values: kTileElements, except in the last tile. take() stores them, add() adds them.
  void take(float* out, size_t n);
  void add(float* into, size_t n);

 private:
  Decoder(const Codec& codec, ConstBytes message, size_t elements, uint32_t seed)
      : codec_(codec),
        layout_(message_layout(codec, elements)),
        elements_(elements),
        message_(message),
        seed_(seed) {}
  void take_sparse(float* into, size_t n);

  Codec codec_;
  MessageLayout layout_;
  size_t elements_;
  ConstBytes message_;
  uint32_t seed_;
  size_t done_ = 0;
  size_t entry_ = 0;  // sparse: the next
};

}  // namespace braid
