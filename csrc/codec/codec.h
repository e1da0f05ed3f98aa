// SPDX-License-Identifier: Apache-2.0
// Lossy codecs: they encode a run of floats in fewer bytes. They also return the loss, which the caller adds next
// time (error feedback: Seide et al. 2014; Karimireddy et al. 2019). One encoded run is a *message*;
// docs/codecs.md has a full dump of each layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/span.h"
#include "base/status.h"

namespace braid {

// The values travel in messages: append only.
enum class CodecKind : uint8_t {
  kFloat16 = 0,
  kBFloat16 = 1,
  kFloat8E4M3 = 2,
  kFloat8E5M2 = 3,
  kInt8 = 4,
  kInt4 = 5,
  kQsgd = 6,
  kSign = 7,
  kTopK = 8,
  kRandomK = 9,
};
inline constexpr int kCodecKindCount = 10;

struct Codec {
  CodecKind kind = CodecKind::kBFloat16;
  uint32_t every = 0;  // top-k and random-k: one element in so many is sent; 0 for other codecs

  bool operator==(const Codec&) const = default;
};

inline constexpr uint32_t kLeastEvery = 4;  // below this the positions cost more than they save
inline constexpr uint32_t kMostEvery = 1u << 20;
inline constexpr size_t kMostEncodedElements = size_t{1} << 31;  // in one message

// "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"; "top_k:0.001" and "random_k:0.01" with
// the part of the elements that is sent; 1/part is rounded to a whole number (4 to 2^20). kInvalidArgument lists
// the codecs.
Result<Codec> codec_from_text(std::string_view text);
std::string to_text(const Codec& codec);

struct CodecTraits {
  std::string_view name;     // without the part
  bool is_sparse = false;    // sends some elements as they are, others not at all
  bool is_unbiased = false;  // the expected value of a decoded element is the encoded element
  bool is_linear = false;    // decoding the sum of two messages of one seed gives the sum of the decoded messages
  int block_elements = 1;    // the number of elements that share a scale
  // Dense codecs: the largest error of a decoded element, apart from the rounding of floats. For fp16 and bf16 it
  // is a part of the element's own magnitude, in the format's normal range. For fp8, int8, int4 and qsgd it is a
  // part of the largest magnitude of the block, if that is 2^-100 or more; smaller blocks become zeros. For sign
  // it is 1.
  double error_bound = 0;
  // Seconds per byte of the floats that a core takes to encode, and about as many to decode, if they are not
  // measured.
  double coding_s_per_byte = 2e-10;
};
const CodecTraits& traits(CodecKind kind);

// The size of a message. REQUIRES: elements <= kMostEncodedElements.
size_t encoded_bytes(const Codec& codec, size_t elements);
// The bytes of a message divided by the bytes of its floats; by default for a long message. REQUIRES: elements >
// 0.
double ratio(const Codec& codec, size_t elements = size_t{1} << 24);

// Encodes values[i] * scale + residual[i], and leaves in residual[i] what the message lacks of it: exactly the
// float difference, 0 where it is not finite. Without a residual the loss is forgotten. What is not finite decodes
// to what is not finite either: to NaN, and a scaled codec's whole block with it; to itself in fp16, bf16 and
// top-k, in so far as that sends it; random-k sends a NaN in its place if it is not the one of its stretch that is
// chosen. A finite element decodes to a finite one, unless the sum of a block of sign overflows.
//
// `seed` determines the random choices of qsgd and random_k; other codecs ignore it. Messages of random_k with the
// same seed are linear.
//
// The bytes and the residual are the same on every host and device. They do not depend on how the calling thread
// treats subnormal floats.
//
// REQUIRES: elements <= kMostEncodedElements; out.size() == encoded_bytes(codec, elements); residual null or
// `elements` floats that overlap neither.
void encode(const Codec& codec, const float* values, size_t elements, float scale, float* residual, uint32_t seed,
            Bytes out);

// kInvalidArgument if the message is not of this codec or has another number of elements; then `out` is unchanged.
// No input makes it read past `message` or write past `out`.
Status decode(const Codec& codec, ConstBytes message, float* out, size_t elements);
// into[i] += decoded[i].
Status decode_add(const Codec& codec, ConstBytes message, float* into, size_t elements);

}  // namespace braid
