// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codec/codec.h"

namespace braid {

// How an all_reduce or a reduce_scatter may lose precision for fewer bytes between hosts.
struct Lossy {
  Codec codec;
  // One float per element of the input, in units of the result, or null. Where this rank sends to another host,
  // what its messages have lacked so far; where it adds up, what the sum that it sent has lacked. Both are missing
  // from the result alike, so it stays right when another plan gives the sums to other ranks: what was kept where
  // this rank now gives exactly what it has, to another of its host, goes along.
  //
  // It is the operation's until that has ended. A failed operation leaves in it neither what it had nor what it
  // would have had: who goes on in a new group should begin with zeros.
  float* residual = nullptr;
  uint32_t seed = 0;  // of the random choices; the same on all ranks
};

// A number for every codec, and 0 for none, in 26 bits; and the codec's text again, or nothing where the number
// makes no sense.
inline int32_t word_of(const std::optional<Lossy>& lossy) {
  if (!lossy) return 0;
  return static_cast<int32_t>(lossy->codec.every << 5) | (static_cast<int32_t>(lossy->codec.kind) + 1);
}
inline std::string codec_of_word(int32_t word) {
  const int32_t kind = (word & 31) - 1, every = word >> 5;
  if (kind < 0 || kind >= kCodecKindCount) return "";
  if (traits(static_cast<CodecKind>(kind)).is_sparse != (every > 0)) return "";
  return to_text({static_cast<CodecKind>(kind), static_cast<uint32_t>(every)});
}

}  // namespace braid
