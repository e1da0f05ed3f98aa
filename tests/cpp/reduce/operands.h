// SPDX-License-Identifier: Apache-2.0
// Operands for the tests of reduce(): random bits with the awkward values mixed in.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "reduce/reduce.h"
#include "support/instruction_sets.h"

namespace braid::testing {

// The bits of zeros, ones, subnormals, the largest numbers, infinities, and NaNs quiet and signalling; both signs.
inline std::vector<uint64_t> awkward_bits(DType dtype) {
  std::vector<uint64_t> bits;
  switch (dtype) {
    case DType::kFloat64:
      bits = {0,
              0x3ff0000000000000,
              1,
              0x000fffffffffffff,
              0x7fefffffffffffff,
              0x7ff0000000000000,
              0x7ff8000000000000,
              0x7ff4dead00000001,
              0x7ff0000000000001};
      break;
    case DType::kFloat32:
      bits = {0, 0x3f800000, 1, 0x007fffff, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7fadbeef, 0x7f800001};
      break;
    case DType::kFloat16: bits = {0, 0x3c00, 1, 0x03ff, 0x7bff, 0x7c00, 0x7e00, 0x7dad, 0x7c01}; break;
    case DType::kBFloat16: bits = {0, 0x3f80, 1, 0x007f, 0x7f7f, 0x7f80, 0x7fc0, 0x7fad, 0x7f81}; break;
    case DType::kFloat8E4M3Fn: bits = {0, 0x38, 1, 0x07, 0x7e, 0x7f}; break;
    case DType::kFloat8E5M2: bits = {0, 0x3c, 1, 0x03, 0x7b, 0x7c, 0x7e, 0x7d, 0x7f}; break;
    case DType::kBool: return {0, 0, 0, 0, 1, 2, 255};
    default: bits = {0, 1, ~uint64_t{0} >> (65 - 8 * size_of(dtype))}; break;
  }
  const size_t positive = bits.size();
  for (size_t i = 0; i < positive; ++i) bits.push_back(bits[i] | (uint64_t{1} << (8 * size_of(dtype) - 1)));
  return bits;
}

inline void fill_randomly(DType dtype, std::byte* to, size_t count, std::mt19937_64& random) {
  if (dtype == DType::kComplex64) return fill_randomly(DType::kFloat32, to, 2 * count, random);
  if (dtype == DType::kComplex128) return fill_randomly(DType::kFloat64, to, 2 * count, random);
  const std::vector<uint64_t> awkward = awkward_bits(dtype);
  for (size_t i = 0; i < count; ++i) {
    const bool special = dtype == DType::kBool || random() % 8 == 0;
    const uint64_t bits = special ? awkward[random() % awkward.size()] : random();
    std::memcpy(to + i * size_of(dtype), &bits, size_of(dtype));
  }
}

}  // namespace braid::testing
