// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codec/codec.h"

namespace braid {

// How an all_reduce or a reduce_scatter may lose precision to send fewer bytes between hosts.
struct Lossy {
  Codec codec;
  // One float per element of the input, in units of the result, or null. Where this rank sends to another host,
  // what its messages have lacked so far; where it adds up, what the sum that it sent has lacked. Both are missing
  // from the result alike, so it stays right when another plan gives the sums to other ranks: what was kept where
  // this rank now gives exactly what it has, to another of its host, goes along.
  //
  // It belongs to the operation until the operation has ended. After a failed operation its content is neither the
  // old nor the new residual: begin with zeros in a new group.
  float* residual = nullptr;
  uint32_t seed = 0;  // for the random choices; equal on all ranks
};

// A number of 26 bits for every codec, 0 for no codec. The reverse gives the codec's text, or nothing for a number
// without a codec.
inline uint32_t codec_number(const std::optional<Lossy>& lossy) {
  static_assert(kMostEvery < 1 << 21 && kCodecKindCount < 32);
  return lossy ? lossy->codec.every << 5 | (static_cast<uint32_t>(lossy->codec.kind) + 1) : 0;
}
inline std::string name_of_codec(uint32_t number) {
  const auto kind = static_cast<int>(number & 31) - 1;
  const uint32_t every = number >> 5;
  if (kind < 0 || kind >= kCodecKindCount) return "";
  if (traits(static_cast<CodecKind>(kind)).is_sparse != (every > 0)) return "";
  return to_text({static_cast<CodecKind>(kind), every});
}

}  // namespace braid
