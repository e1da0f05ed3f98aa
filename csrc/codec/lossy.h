// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "codec/codec.h"

namespace braid {

// How an all_reduce or a reduce_scatter may lose precision for fewer bytes between hosts.
struct Lossy {
  Codec codec;
  // One float per element of the input, in units of the result, or null. Where this rank sends, what its messages
  // have lacked so far; where it adds up, what the sum that it sent has lacked. Both are missing from the result
  // alike, so it stays right when another plan gives the sums to other ranks.
  float* residual = nullptr;
  uint32_t seed = 0;  // of the random choices; the same on all ranks
};

// Another number for every codec, and 0 for none, in 26 bits.
inline int32_t word_of(const std::optional<Lossy>& lossy) {
  if (!lossy) return 0;
  return static_cast<int32_t>(lossy->codec.every << 5) | (static_cast<int32_t>(lossy->codec.kind) + 1);
}

}  // namespace braid
