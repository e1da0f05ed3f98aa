// SPDX-License-Identifier: Apache-2.0
#include "codec/codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/float_environment.h"
#include "codec/formulas.h"
#include "codec/stream.h"

namespace braid {
namespace {

constexpr CodecTraits kTraits[kCodecKindCount] = {
    {.name = "fp16", .error_bound = 0x1p-11},
    {.name = "bf16", .error_bound = 0x1p-8},
    {.name = "fp8_e4m3", .block_elements = formula::kBlock, .error_bound = 0x1p-4},
    {.name = "fp8_e5m2", .block_elements = formula::kBlock, .error_bound = 0x1p-3},
    {.name = "int8", .block_elements = formula::kBlock, .error_bound = 0.5 / 127},
    {.name = "int4", .block_elements = formula::kBlock, .error_bound = 0.5 / 7},
    {.name = "qsgd", .is_unbiased = true, .block_elements = formula::kBlock, .error_bound = 1.0 / 127},
    {.name = "sign", .block_elements = formula::kSignBlock, .error_bound = 1},
    {.name = "top_k", .is_sparse = true, .error_bound = 1, .coding_s_per_byte = 4e-10},
    {.name = "random_k", .is_sparse = true, .is_linear = true, .error_bound = 1},
};

std::string known_names() {
  std::string names;
  for (const CodecTraits& row : kTraits) {
    names += names.empty() ? "" : ", ";
    names += std::string(row.name) + (row.is_sparse ? ":PART" : "");
  }
  return names;
}

// The text has a decimal point in every locale.
std::string part_text(double part) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, part, std::chars_format::general, 8);
  return {text, end};
}

}  // namespace

const CodecTraits& traits(CodecKind kind) { return kTraits[static_cast<size_t>(kind)]; }

Result<Codec> codec_from_text(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "codec \"" + std::string(text) + "\": " + what);
  };
  const auto* row =
      std::find_if(std::begin(kTraits), std::end(kTraits), [&](const auto& r) { return r.name == name; });
  if (row == std::end(kTraits)) return wrong("there is none of that name; there are " + known_names());
  Codec codec{static_cast<CodecKind>(row - kTraits)};
  if (row->is_sparse != (name.size() < text.size())) {
    return wrong(row->is_sparse ? "say which part is sent, as in " + std::string(name) + ":0.01"
                                : "it takes no part after a colon");
  }
  if (!row->is_sparse) return codec;
  const std::string_view said = text.substr(name.size() + 1);
  double part = 0;
  const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), part);
  if (error != std::errc() || end != said.data() + said.size() || !(part >= 1.0 / kMostEvery) ||
      !(part <= 1.0 / kLeastEvery)) {
    return wrong("the part sent must be a number from " + part_text(1.0 / kMostEvery) + " to 0.25");
  }
  codec.every = static_cast<uint32_t>(std::lround(1 / part));
  return codec;
}

std::string to_text(const Codec& codec) {
  const CodecTraits& row = traits(codec.kind);
  if (!row.is_sparse) return std::string(row.name);
  return std::string(row.name) + ":" + part_text(1.0 / codec.every);
}

size_t encoded_bytes(const Codec& codec, size_t elements) { return message_layout(codec, elements).bytes; }

double ratio(const Codec& codec, size_t elements) {
  return static_cast<double>(encoded_bytes(codec, elements)) / static_cast<double>(elements * sizeof(float));
}

void encode(const Codec& codec, const float* values, size_t elements, float scale, float* residual, uint32_t seed,
            Bytes out) {
  const PlainFloats plain;
  Encoder encoder(codec, elements, seed, residual, out);
  for (size_t begin = 0; begin < elements; begin += kTileElements) {
    encoder.put_sums(values + begin, scale, residual == nullptr ? nullptr : residual + begin,
                     std::min(kTileElements, elements - begin));
  }
  encoder.finish();
}

namespace {

// Calls read(decoder, begin, n) for each tile of a valid message.
template <class Read>
Status read_tiles(const Codec& codec, ConstBytes message, size_t elements, const Read& read) {
  auto decoder = Decoder::open(codec, message, elements);
  if (!decoder.ok()) return decoder.status();
  const PlainFloats plain;
  for (size_t begin = 0; begin < elements; begin += kTileElements) {
    read(decoder.value(), begin, std::min(kTileElements, elements - begin));
  }
  return {};
}

}  // namespace

Status decode(const Codec& codec, ConstBytes message, float* out, size_t elements) {
  return read_tiles(codec, message, elements,
                    [out](Decoder& decoder, size_t begin, size_t n) { decoder.take(out + begin, n); });
}

Status decode_add(const Codec& codec, ConstBytes message, float* into, size_t elements) {
  return read_tiles(codec, message, elements,
                    [into](Decoder& decoder, size_t begin, size_t n) { decoder.add(into + begin, n); });
}

}  // namespace braid
