// SPDX-License-Identifier: Apache-2.0
// The loop over the blocks of a tile. Included once by each kernels_<instruction set>.cc; base/vectors.h has the
// rules for such files.
//
// Blocks are whole: the last block of a message is padded with zeros, which change nothing. Only as many decoded
// floats are stored as the message has elements.
#pragma once

#include "codec/kernels.h"
#include "codec/lanes.h"

namespace braid {
namespace {

using namespace formula;

struct Store {
  static void to(float* out, Floats value) { store_floats(out, value); }
};
struct Add {
  static void to(float* out, Floats value) { store_floats(out, load_floats(out) + value); }
};

Floats load_terms(const Terms& terms, size_t at) {
  const Floats product = load_floats(terms.values + at) * terms.scale;
  return terms.addend == nullptr ? product : product + load_floats(terms.addend + at);
}
float load_term(const Terms& terms, size_t at) {
  const float product = terms.values[at] * terms.scale;
  return terms.addend == nullptr ? product : product + terms.addend[at];
}
Terms after(const Terms& terms, size_t elements) {
  return {terms.values + elements, terms.scale, terms.addend == nullptr ? nullptr : terms.addend + elements};
}

// A Block says: kElements; encode(terms, elements, position, seed, index, scales, data, left), with `elements` of
// them not padding; decode<Into>(index, scales, data, out). `index` is the block's in its tile.
template <class Block>
[[gnu::noinline]] void encode_rest(const Terms& terms, size_t elements, uint32_t position, uint32_t seed,
                                   size_t index, std::byte* scales, std::byte* data, float* left) {
  float padded[Block::kElements] = {};
  for (size_t i = 0; i < elements; ++i) padded[i] = load_term(terms, i);
  Block::encode({padded, 1, nullptr}, elements, position, seed, index, scales, data, padded);
  if (left != nullptr) __builtin_memcpy(left, padded, elements * sizeof(float));
}
template <class Block>
void encode_tile(const Terms& terms, size_t n, uint32_t position, uint32_t seed, std::byte* scales,
                 std::byte* data, float* left) {
  constexpr size_t kElements = Block::kElements;
  const auto left_at = [&](size_t at) { return left == nullptr ? nullptr : left + at; };
  size_t index = 0;
  for (; (index + 1) * kElements <= n; ++index) {
    const size_t done = index * kElements;
    Block::encode(after(terms, done), kElements, position + static_cast<uint32_t>(done), seed, index, scales, data,
                  left_at(done));
  }
  const size_t done = index * kElements;
  if (done < n) {
    encode_rest<Block>(after(terms, done), n - done, position + static_cast<uint32_t>(done), seed, index, scales,
                       data, left_at(done));
  }
}

template <class Block, class Into>
[[gnu::noinline]] void decode_rest(size_t index, const std::byte* scales, const std::byte* data, size_t elements,
                                   float* out) {
  float padded[Block::kElements] = {};
  __builtin_memcpy(padded, out, elements * sizeof(float));
  Block::template decode<Into>(index, scales, data, padded);
  __builtin_memcpy(out, padded, elements * sizeof(float));
}
template <class Block, class Into>
void decode_tile(const std::byte* scales, const std::byte* data, size_t n, float* out) {
  constexpr size_t kElements = Block::kElements;
  size_t index = 0;
  for (; (index + 1) * kElements <= n; ++index) {
    Block::template decode<Into>(index, scales, data, out + index * kElements);
  }
  if (index * kElements < n) {
    decode_rest<Block, Into>(index, scales, data, n - index * kElements, out + index * kElements);
  }
}

}  // namespace
}  // namespace braid
