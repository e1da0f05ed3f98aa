// SPDX-License-Identifier: Apache-2.0
// Floats and their integers in vectors, and how bytes, halves and bits become lanes and go back to memory.
// Included once by each kernels_<instruction set>.cc; base/vectors.h has the rules for such files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/vectors.h"
#include "codec/formulas.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace braid {
namespace {

using Floats = Vector<float>;
using Bits = Vector<uint32_t>;
using Ints = Vector<int32_t>;

constexpr size_t kStep = kLanes<float>;

}  // namespace

namespace formula {
template <>
struct Lane<Floats> {
  using Bits = braid::Bits;
  using Int = Ints;
  BRAID_FORMULA static Floats to_float(Ints value) { return __builtin_convertvector(value, Floats); }
  BRAID_FORMULA static Ints to_int(Floats value) { return __builtin_convertvector(value, Ints); }
};
}  // namespace formula

namespace {

Floats load_floats(const float* from) { return load_vector<Floats>(reinterpret_cast<const std::byte*>(from)); }
void store_floats(float* to, Floats value) { store_vector(reinterpret_cast<std::byte*>(to), value); }

// Bytes and halves become lanes, and the low byte or half of each lane goes back. GCC 12 makes a move per element
// of what the last rows say in general.

template <bool kSigned>
Ints load_bytes(const std::byte* from) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  const auto bytes = load_vector<__m128i>(from);
  return (Ints)(kSigned ? _mm512_maskz_cvtepi8_epi32(0xffff, bytes) : _mm512_maskz_cvtepu8_epi32(0xffff, bytes));
#elif defined(__AVX2__) && BRAID_VECTOR_BYTES == 32
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return (Ints)(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  int four;
  __builtin_memcpy(&four, from, sizeof four);
  const __m128i upper = _mm_unpacklo_epi8(__m128i{}, _mm_cvtsi32_si128(four));
  const auto uppermost = (Bits)_mm_unpacklo_epi16(__m128i{}, upper);
  return kSigned ? (Ints)uppermost >> 24 : (Ints)(uppermost >> 24);
#else
  using Unit = typename VectorOf<std::conditional_t<kSigned, int8_t, uint8_t>, kStep>::Type;
  return __builtin_convertvector(load_vector<Unit>(from), Ints);
#endif
}

void store_bytes(std::byte* to, Bits value) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  store_vector(to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)value));
#elif defined(__AVX2__) && BRAID_VECTOR_BYTES == 32
  const __m256i packed = _mm256_shuffle_epi8((__m256i)value, _mm256_set1_epi32(0x0c080400));
  const __m128i low = _mm256_castsi256_si128(packed), high = _mm256_extracti128_si256(packed, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(low, high));
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  const __m128i halves = _mm_packs_epi32((__m128i)(value & 0xffu), __m128i{});
  const int four = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
  __builtin_memcpy(to, &four, sizeof four);
#else
  store_vector(to, __builtin_convertvector(value, VectorOf<uint8_t, kStep>::Type));
#endif
}

Bits load_halves(const std::byte* from) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  return (Bits)_mm512_maskz_cvtepu16_epi32(0xffff, load_vector<__m256i>(from));
#elif defined(__AVX2__) && BRAID_VECTOR_BYTES == 32
  return (Bits)_mm256_cvtepu16_epi32(load_vector<__m128i>(from));
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  return (Bits)_mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), __m128i{});
#else
  return __builtin_convertvector(load_vector<VectorOf<uint16_t, kStep>::Type>(from), Bits);
#endif
}

void store_halves(std::byte* to, Bits value) {
#if defined(__AVX512F__) && BRAID_VECTOR_BYTES == 64
  store_vector(to, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)value));
#elif defined(__AVX2__) && BRAID_VECTOR_BYTES == 32
  const __m256i twice = _mm256_packus_epi32((__m256i)(value & 0xffffu), (__m256i)(value & 0xffffu));
  store_vector(to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(twice, 0x08)));
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  const auto half = (__m128i)((Ints)(value << 16) >> 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(half, half));
#else
  store_vector(to, __builtin_convertvector(value, VectorOf<uint16_t, kStep>::Type));
#endif
}

// 0, 1, 2, ...
Bits lane_numbers() {
  Bits numbers;
  for (uint32_t i = 0; i < kStep; ++i) numbers[i] = i;
  return numbers;
}

// The uppermost bit of each lane, the first lane's lowest.
uint32_t sign_bits(Bits value) {
#if defined(__AVX512DQ__) && BRAID_VECTOR_BYTES == 64
  return _mm512_movepi32_mask((__m512i)value);
#elif defined(__AVX__) && BRAID_VECTOR_BYTES == 32
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)value));
#elif defined(__SSE2__) && BRAID_VECTOR_BYTES == 16
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)value));
#else
  const Bits placed = (value >> 31) << lane_numbers();
  uint32_t bits = 0;
  for (size_t i = 0; i < kStep; ++i) bits |= placed[i];
  return bits;
#endif
}

uint32_t largest_lane(Ints value) {
  int32_t largest = 0;
  for (size_t i = 0; i < kStep; ++i) largest = value[i] > largest ? value[i] : largest;
  return static_cast<uint32_t>(largest);
}

}  // namespace
}  // namespace braid
