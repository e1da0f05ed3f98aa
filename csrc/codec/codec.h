// SPDX-License-Identifier: Apache-2.0
// Lossy codecs: fewer bytes for a run of floats, and what the loss was, to be added next time (error feedback:
// Seide et al. 2014; Karimireddy et al. 2019). One encoded run is a *message*; docs/codecs.md has a full dump of
// each.
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
  uint32_t every = 0;  // top-k and random-k: one element of so many is sent; 0 for others

  bool operator==(const Codec&) const = default;
};

inline constexpr uint32_t kLeastEvery = 4;  // denser than that is not worth its indices
inline constexpr uint32_t kMostEvery = 1u << 20;
inline constexpr size_t kMostEncodedElements = size_t{1} << 31;  // of one message

// "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"; "top_k:0.001" and "random_k:0.01" with
// the part of the elements that is sent, of which 1/part is rounded to a whole number (4 to 2^20).
// kInvalidArgument says what there is.
Result<Codec> codec_from_text(std::string_view text);
std::string to_text(const Codec& codec);

struct CodecTraits {
  std::string_view name;     // without the part
  bool is_sparse = false;    // sends some elements as they are, others not at all
  bool is_unbiased = false;  // the expected value of what is decoded is what was encoded
  bool is_linear = false;    // decoding the sum of two messages of one seed gives the sum of the decoded
  int block_elements = 1;    // that share a scale
  // Dense codecs: no decoded element is further from its own than this part of the largest magnitude of its block,
  // but for the rounding of floats (fp16, bf16: of its own magnitude, in the format's normal range; the others: of
  // blocks whose largest is 2^-100 or more, those below become zeros). Sign has no bound but that.
  double error_bound = 0;
  // What encoding takes a core, and about what decoding takes, per byte of the floats, where nobody has measured it.
  double coding_s_per_byte = 2e-10;
};
const CodecTraits& traits(CodecKind kind);

// The size of a message. REQUIRES: elements <= kMostEncodedElements.
size_t encoded_bytes(const Codec& codec, size_t elements);
// Bytes of a message over the bytes of its floats; of a long one, unless told. REQUIRES: elements > 0.
double ratio(const Codec& codec, size_t elements = size_t{1} << 24);

// Encodes values[i] * scale + residual[i], and leaves in residual[i] what the message lacks of it: exactly the
// float difference, 0 where it is not finite. Without a residual the loss is forgotten. What is not finite decodes
// to what is not finite either: to NaN, and a scaled codec's whole block with it; to itself in fp16, bf16 and
// top-k, in so far as that sends it; random-k sends a NaN in its place if it is not the one of its stretch that is
// chosen. A finite element decodes to a finite one, unless the sum of a block of sign overflows.
//
// `seed` makes the random choices of qsgd and random_k; others ignore it. Messages of random_k are linear among
// equal seeds.
//
// The bytes and the residual are the same on every host and device, and whatever the calling thread does with
// subnormal floats.
//
// REQUIRES: elements <= kMostEncodedElements; out.size() == encoded_bytes(codec, elements); residual null or
// `elements` floats that overlap neither.
void encode(const Codec& codec, const float* values, size_t elements, float scale, float* residual, uint32_t seed,
            Bytes out);

// kInvalidArgument for a message that is not one of this codec and so many elements; `out` is then untouched.
// No input makes it read past `message` or write past `out`.
Status decode(const Codec& codec, ConstBytes message, float* out, size_t elements);
// into[i] += decoded[i].
Status decode_add(const Codec& codec, ConstBytes message, float* into, size_t elements);

}  // namespace braid
