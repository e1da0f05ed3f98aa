// SPDX-License-Identifier: Apache-2.0
// The plainest reduction there is, to hold reduce() against: one element at a time, every element as a long
// integer or a double, narrow floats taken apart with ldexp. Shares nothing with csrc but the enumerations.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace braid::testing {

using Wide = unsigned __int128;

inline bool is_float(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || is_narrow_float(dtype);
}
inline bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }
inline DType part_of(DType complex) { return complex == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64; }
inline bool is_signed(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

// A float of 16 or 8 bits: sign, exponent, and `mantissa` bits of significand. The smallest normal is 2^lowest.
// Without infinity only the last pattern is a NaN, and what is too large becomes the largest number.
struct NarrowFormat {
  int bits, mantissa, lowest;
  uint32_t nan;
  bool infinity = true;
  uint32_t magnitudes() const { return 1u << (bits - 1); }
  uint32_t top_exponent() const { return (magnitudes() - 1) >> mantissa; }
};
inline constexpr NarrowFormat kFloat16Format{16, 10, -14, 0x7e00};
inline constexpr NarrowFormat kBFloat16Format{16, 7, -126, 0x7fc0};
inline constexpr NarrowFormat kFloat8E4M3FnFormat{8, 3, -6, 0x7f, false};
inline constexpr NarrowFormat kFloat8E5M2Format{8, 2, -14, 0x7f};
inline NarrowFormat narrow_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return kFloat16Format;
    case DType::kBFloat16: return kBFloat16Format;
    case DType::kFloat8E4M3Fn: return kFloat8E4M3FnFormat;
    default: return kFloat8E5M2Format;
  }
}

inline double decode_narrow(NarrowFormat format, uint32_t bits) {
  const uint32_t magnitude_bits = bits & (format.magnitudes() - 1);
  const auto exponent = static_cast<int>(magnitude_bits >> format.mantissa);
  const uint32_t fraction = bits & ((1u << format.mantissa) - 1);
  double magnitude = std::ldexp(fraction + (exponent != 0 ? std::ldexp(1.0, format.mantissa) : 0.0),
                                std::max(exponent - 1, 0) + format.lowest - format.mantissa);
  if (!format.infinity) {
    if (magnitude_bits == format.nan) magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == static_cast<int>(format.top_exponent())) {
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  }
  return (bits & format.magnitudes()) != 0 ? -magnitude : magnitude;
}

// To nearest even; a NaN becomes the quiet one without sign or payload.
inline uint16_t encode_narrow(NarrowFormat format, double value) {
  const uint32_t most = format.infinity ? format.top_exponent() << format.mantissa : format.nan - 1;
  if (std::isnan(value)) return static_cast<uint16_t>(format.nan);
  const uint32_t sign = std::signbit(value) ? format.magnitudes() : 0;
  uint32_t bits = most;
  if (value == 0) {
    bits = 0;
  } else if (std::fabs(value) < std::ldexp(1.0, 200)) {
    const int exponent = std::max(std::ilogb(value), format.lowest);
    const double steps = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa - exponent));
    // One step more than the fraction holds carries into the exponent, as it should; the hidden bit adds the other
    // one.
    bits = (static_cast<uint32_t>(exponent - format.lowest) << format.mantissa) + static_cast<uint32_t>(steps);
    bits = std::min(bits, most);
  }
  return static_cast<uint16_t>(sign | bits);
}

inline double load_float(DType dtype, const std::byte* from) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, from, 8);
    return value;
  }
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, size_of(dtype));
  return decode_narrow(narrow_format(dtype), bits);
}

inline void store_float(DType dtype, std::byte* to, double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  if (dtype == DType::kFloat64) {
    std::memcpy(to, &value, 8);
  } else if (dtype == DType::kFloat32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, 4);
  } else {
    const uint16_t bits = encode_narrow(narrow_format(dtype), value);
    std::memcpy(to, &bits, size_of(dtype));
  }
}

// A double step rounded to float has the bits of a float step: 53 bits are enough for that.
inline double step(DType dtype, double value) {
  return dtype == DType::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
}

inline double combine_floats(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return a + b;
    case ReduceOp::kProduct: return a * b;
    default: break;
  }
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  const bool a_below = a < b || (a == b && std::signbit(a));  // -0 below +0
  return (op == ReduceOp::kMin) == a_below ? a : b;
}

// Elements as integers, sign-extended where signed.
inline Wide load_integer(DType dtype, const std::byte* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, size_of(dtype));
  const int unused = 64 - 8 * static_cast<int>(size_of(dtype));
  if (is_signed(dtype))
    return static_cast<Wide>(static_cast<__int128>(static_cast<int64_t>(bits << unused) >> unused));
  return bits;
}

inline Wide combine_integers(DType dtype, ReduceOp op, Wide a, Wide b) {
  const bool a_below = is_signed(dtype) ? static_cast<__int128>(a) < static_cast<__int128>(b) : a < b;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return a + b;
    case ReduceOp::kProduct: return a * b;
    case ReduceOp::kMin: return a_below ? a : b;
    case ReduceOp::kMax: return a_below ? b : a;
    case ReduceOp::kBand: return a & b;
    case ReduceOp::kBor: return a | b;
    case ReduceOp::kBxor: return a ^ b;
  }
  return 0;
}

inline void reference_element(DType dtype, ReduceOp op, std::byte* target,
                              const std::vector<const std::byte*>& sources, size_t at, int divisor) {
  if (is_complex(dtype)) {
    const DType part = part_of(dtype);
    reference_element(part, op, target, sources, at, divisor);
    reference_element(part, op, target, sources, at + size_of(part), divisor);
  } else if (is_float(dtype)) {
    double value = load_float(dtype, sources[0] + at);
    for (size_t j = 1; j < sources.size(); ++j) {
      value = step(dtype, combine_floats(op, value, load_float(dtype, sources[j] + at)));
    }
    if (op == ReduceOp::kAvg && divisor > 1) value = step(dtype, value / divisor);
    store_float(dtype, target + at, value);
  } else if (dtype == DType::kBool) {
    size_t trues = 0;
    for (const std::byte* source : sources) trues += source[at] != std::byte{0} ? 1 : 0;
    const bool all = op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBand;
    bool result = all ? trues == sources.size() : trues > 0;
    if (op == ReduceOp::kBxor) result = trues % 2 == 1;
    target[at] = std::byte{result};
  } else {
    Wide value = load_integer(dtype, sources[0] + at);
    for (size_t j = 1; j < sources.size(); ++j) {
      value = combine_integers(dtype, op, value, load_integer(dtype, sources[j] + at));
    }
    if (op == ReduceOp::kAvg && divisor > 1) {
      std::memcpy(target + at, &value, size_of(dtype));  // wraps first
      value = load_integer(dtype, target + at);
      value = is_signed(dtype) ? static_cast<Wide>(static_cast<__int128>(value) / divisor)
                               : value / static_cast<Wide>(divisor);
    }
    std::memcpy(target + at, &value, size_of(dtype));
  }
}

inline std::vector<std::byte> reference_reduce(DType dtype, ReduceOp op,
                                               const std::vector<const std::byte*>& sources, size_t count,
                                               int divisor) {
  std::vector<std::byte> result(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    reference_element(dtype, op, result.data(), sources, i * size_of(dtype), divisor);
  }
  return result;
}

}  // namespace braid::testing
