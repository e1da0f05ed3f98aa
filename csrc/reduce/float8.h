// SPDX-License-Identifier: Apache-2.0
// The element kinds of the 8-bit floats of the Open Compute Project, to and from float. As for lanes.h: included
// once by each kernels_<instruction set>.cc, everything in the anonymous namespace.
#pragma once

#include "reduce/lanes.h"

namespace braid {
namespace {

// Formats with sign, exponent and kMantissa bits. kLargest is the largest result of rounding. Codes from kSpecial
// on are infinity and NaN.
struct E4M3Fn {
  static constexpr int kMantissa = 3, kBias = 7, kLargest = 0x7e, kSpecial = 0x7f;
};
struct E5M2 {
  static constexpr int kMantissa = 2, kBias = 15, kLargest = 0x7c, kSpecial = 0x7c;  // infinity is the largest
};

// Two elements come in a 16-bit unit, which becomes a 32-bit lane: one half of the pair takes the lower byte of
// each lane, the other the upper one. No subnormal float occurs on the way, so flushing them changes nothing.
template <class Format>
struct Float8 {
  using Value = float;
  using Bits = Vector<int32_t>;
  typedef uint16_t Units __attribute__((vector_size(BRAID_VECTOR_BYTES / 2)));
  static constexpr size_t kElementBytes = 1;
  static constexpr size_t kBlock = 2 * kLanes<float>;
  static constexpr int kDropped = 23 - Format::kMantissa;  // bits that float's significand has more
  static constexpr int kRebias = (127 - Format::kBias) << 23;
  static constexpr int kOne = 1 << 23;  // of an exponent of float

  // Takes the low byte of each lane.
  static Vector<float> widen(Bits lane) {
    constexpr int kToSpecial = (255 - (Format::kSpecial >> Format::kMantissa)) << 23;
    constexpr float kLowest = __builtin_bit_cast(float, kRebias + kOne);
    const Bits shifted = (lane & 0x7f) << kDropped;
    const Bits subnormal = (Bits)((Vector<float>)(shifted + (kRebias + kOne)) - kLowest);
    const Bits finite = (shifted < kOne) ? subnormal : shifted + kRebias;
    const Bits bits = (shifted >= (Format::kSpecial << kDropped)) ? shifted + kToSpecial : finite;
    return (Vector<float>)(bits | ((lane & 0x80) << 24));
  }
  // The only NaN that it takes is the NaN that finish() makes.
  static Bits narrow(Vector<float> value) {
    // A float whose last bit is worth as much as the last one of a subnormal here: adding it rounds to that.
    constexpr int kRounder = kRebias + (kDropped + 1) * kOne;
    const Bits sign = ((Bits)value >> 24) & 0x80;
    const Bits bits = (Bits)value & 0x7fffffff;
    const Bits subnormal = (Bits)((Vector<float>)bits + __builtin_bit_cast(float, kRounder)) - kRounder;
    const Bits odd = (bits >> kDropped) & 1;
    const Bits normal = (bits - kRebias + ((1 << (kDropped - 1)) - 1) + odd) >> kDropped;
    const Bits finite = (bits < kRebias + kOne) ? subnormal : normal;
    const Bits held = (finite > Format::kLargest) ? Bits{} + Format::kLargest : finite;
    return ((bits > 0x7f800000) ? Bits{} + 0x7f : held) | sign;
  }
  static Pair<float> load(const std::byte* from) {
    const Bits both = __builtin_convertvector(load_vector<Units>(from), Bits);
    return {widen(both), widen(both >> 8)};
  }
  static void store(std::byte* to, const Pair<float>& block) {
    store_vector(to, __builtin_convertvector(narrow(block.first) | (narrow(block.second) << 8), Units));
  }
};

}  // namespace
}  // namespace braid
