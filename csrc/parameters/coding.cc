// SPDX-License-Identifier: Apache-2.0
#include "parameters/coding.h"

#include "codec/lossy.h"

namespace braid {

Result<std::optional<Codec>> codec_option(const std::string& text) {
  if (text.empty()) return std::optional<Codec>();
  auto codec = codec_from_text(text);
  if (!codec.ok()) return codec.status();
  return std::optional<Codec>(codec.value());
}

std::string to_text(const std::optional<Codec>& codec) { return codec ? to_text(*codec) : "float32"; }

uint32_t number_of(const std::optional<Codec>& codec) {
  if (!codec) return codec_number(std::nullopt);
  return codec_number(Lossy{*codec});
}

size_t body_bytes(const std::optional<Codec>& codec, size_t count) {
  if (count == 0) return 0;
  return codec ? encoded_bytes(*codec, count) : count * sizeof(float);
}

uint32_t seed_of(uint32_t sender, uint32_t shard, uint32_t message) {
  uint32_t seed = 0;
  for (const uint32_t part : {sender, shard, message}) {
    seed = (seed ^ part) * 0x9e3779b1u;  // odd, so that no two parts become one
    seed ^= seed >> 15;
  }
  return seed;
}

}  // namespace braid
