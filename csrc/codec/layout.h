// SPDX-License-Identifier: Apache-2.0
// Where the parts of a message lie. All numbers are little-endian; header and planes begin at multiples of 16
// bytes, with zeros in between.
//
//   header   16 bytes: 'b' 'c', version, kind, elements (4), entries (4), seed (4)
//   scales   float32 each: one per block (scaled codecs and sign)
//   data     fp16, bf16: 2 bytes an element; fp8, int8, qsgd: one; int4: half of one; sign: a bit, whole blocks
//            top_k: a position (4 bytes) per entry, ascending; then a plane of float32 values
//            random_k: float32 values, one per stretch
#pragma once

#include "codec/codec.h"

namespace braid {

inline constexpr uint8_t kCodecVersion = 1;

struct MessageHeader {
  uint8_t magic[2] = {'b', 'c'};
  uint8_t version = kCodecVersion;
  uint8_t kind = 0;
  uint32_t elements = 0;
  uint32_t entries = 0;  // of a sparse codec
  uint32_t seed = 0;     // of random_k; 0 in others
};
static_assert(sizeof(MessageHeader) == 16);

struct MessageLayout {
  size_t entries = 0;    // sparse: values sent
  size_t scales_at = 0;  // scaled codecs
  size_t scale_count = 0;
  size_t positions_at = 0;  // top_k
  size_t data_at = 0;
  size_t data_bytes = 0;
  size_t bytes = 0;  // of the whole message
};
MessageLayout message_layout(const Codec& codec, size_t elements);

MessageHeader header_for(const Codec& codec, size_t elements, uint32_t seed);
// kInvalidArgument unless `message` has the size and the header for this codec and this number of elements.
Result<MessageHeader> read_header(const Codec& codec, ConstBytes message, size_t elements);

}  // namespace braid
