// SPDX-License-Identifier: Apache-2.0
// Which codecs a parameter service uses for updates (pushes) and for values (pulls).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "codec/codec.h"

namespace braid {

// Nothing in place of a codec means float32.
struct BodyCodecs {
  std::optional<Codec> push;
  std::optional<Codec> pull;
};

// A codec's text; the empty text is float32. kInvalidArgument lists the codecs.
Result<std::optional<Codec>> codec_option(const std::string& text);
// "float32" or the codec's text.
std::string to_text(const std::optional<Codec>& codec);

// As it stands in calls and answers; 0 is float32.
uint32_t number_of(const std::optional<Codec>& codec);
// Bytes of a body of `count` numbers. A body of no numbers has no bytes.
size_t body_bytes(const std::optional<Codec>& codec, size_t count);
// Of the random choices in a message: other ones for each sender, shard and message, but the same in every run.
uint32_t seed_of(uint32_t sender, uint32_t shard, uint32_t message);

}  // namespace braid
