// SPDX-License-Identifier: Apache-2.0
// The dense codecs on tiles. A Form has a tile, encode(), which writes the tile's part of the message and leaves
// in the tile what the message lacks of it, and decode().
#pragma once

#include "cuda/frame.cuh"
#include "cuda/tiles.cuh"

namespace braid::cuda {

using namespace formula;

// ---- float16, bfloat16

struct Half {
  static BRAID_DEVICE uint16_t narrow(float value) { return float16_of(value); }
  static BRAID_DEVICE float widen(uint16_t half) { return float_of_float16(half); }
};
struct Brain {
  static BRAID_DEVICE uint16_t narrow(float value) { return bfloat16_of(value); }
  static BRAID_DEVICE float widen(uint16_t half) { return float_of_bfloat16(half); }
};

template <class Format>
struct HalfForm {
  using T = Quads;
  using Vector = Together<uint16_t, 4>;

  static BRAID_DEVICE void encode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    auto* data = reinterpret_cast<uint16_t*>(job.message + job.plan.data_at) + first;
    BRAID_UNROLL
    for (int g = 0; g < T::kGroups; ++g) {
      const uint32_t place = T::place(4 * g, lane);
      Vector halves;
      BRAID_UNROLL
      for (int w = 0; w < 4; ++w) {
        float& value = tile.at[4 * g + w];
        halves.at[w] = Format::narrow(value);
        value = left_of(value, Format::widen(halves.at[w]));
      }
      // Places past the end hold zeros, and the message goes on with zeros to a multiple of 16 bytes.
      if (first + place < job.elements) *reinterpret_cast<Vector*>(data + place) = halves;
    }
  }

  static BRAID_DEVICE void decode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    const auto* data = reinterpret_cast<const uint16_t*>(job.message + job.plan.data_at) + first;
    Vector halves[T::kGroups] = {};
    BRAID_UNROLL
    for (int g = 0; g < T::kGroups; ++g) {
      const uint32_t place = T::place(4 * g, lane);
      if (first + place < job.elements) halves[g] = *reinterpret_cast<const Vector*>(data + place);
    }
    BRAID_UNROLL
    for (int s = 0; s < T::kSlots; ++s) tile.at[s] = Format::widen(halves[s / 4].at[s % 4]);
  }
};

// ---- Codecs with a scale. A Code: kMost, code(value, inverse, position, seed), value(code, scale), and put() and
// get() for the codes of a lane, of which it has eight in each block: four of its first half and four of its
// second.

struct ByteCodes {
  static constexpr uint32_t kBlockBytes = kBlock;
  using Vector = Together<uint8_t, 4>;

  static BRAID_DEVICE void put(unsigned char* block, uint32_t lane, const int (&codes)[8]) {
    BRAID_UNROLL
    for (int g = 0; g < 2; ++g) {
      Vector bytes;
      BRAID_UNROLL
      for (int w = 0; w < 4; ++w) bytes.at[w] = static_cast<uint8_t>(codes[4 * g + w]);
      reinterpret_cast<Vector*>(block)[g * kWarp + lane] = bytes;
    }
  }
  static BRAID_DEVICE void get(const unsigned char* block, uint32_t lane, int (&codes)[8]) {
    BRAID_UNROLL
    for (int g = 0; g < 2; ++g) {
      const Vector bytes = reinterpret_cast<const Vector*>(block)[g * kWarp + lane];
      BRAID_UNROLL
      for (int w = 0; w < 4; ++w) codes[4 * g + w] = bytes.at[w];
    }
  }
};

struct Int8 : ByteCodes {
  static constexpr float kMost = kMostInt8;
  static BRAID_DEVICE int code(float value, float inverse, uint32_t, uint32_t) { return code_of(value, inverse); }
  static BRAID_DEVICE float value(int code, float scale) { return value_of(static_cast<int8_t>(code), scale); }
};

struct Qsgd : Int8 {
  static BRAID_DEVICE int code(float value, float inverse, uint32_t position, uint32_t seed) {
    return stochastic_code_of(value, inverse, uniform(seed, position));
  }
};

template <class Format>
struct Float8 : ByteCodes {
  static constexpr float kMost = Format::kLargest;
  static BRAID_DEVICE int code(float value, float inverse, uint32_t, uint32_t) {
    return float8_of<Format>(value * inverse);
  }
  static BRAID_DEVICE float value(int code, float scale) {
    return float_of_float8<Format>(static_cast<uint8_t>(code)) * scale;
  }
};

struct Int4 {
  static constexpr float kMost = kMostInt4;
  static constexpr uint32_t kBlockBytes = kBlock / 2;
  using Vector = Together<uint8_t, 4>;

  static BRAID_DEVICE int code(float value, float inverse, uint32_t, uint32_t) { return code_of(value, inverse); }
  static BRAID_DEVICE float value(int code, float scale) { return value_of(code, scale); }

  static BRAID_DEVICE void put(unsigned char* block, uint32_t lane, const int (&codes)[8]) {
    Vector bytes;
    BRAID_UNROLL
    for (int w = 0; w < 4; ++w) bytes.at[w] = static_cast<uint8_t>((codes[w] + 8) | (codes[4 + w] + 8) << 4);
    reinterpret_cast<Vector*>(block)[lane] = bytes;
  }
  static BRAID_DEVICE void get(const unsigned char* block, uint32_t lane, int (&codes)[8]) {
    const Vector bytes = reinterpret_cast<const Vector*>(block)[lane];
    BRAID_UNROLL
    for (int w = 0; w < 4; ++w) {
      codes[w] = (bytes.at[w] & 15) - 8;
      codes[4 + w] = (bytes.at[w] >> 4) - 8;
    }
  }
};

template <class Code>
struct ScaledForm {
  using T = Quads;
  static constexpr int kBlocks = T::kElements / kBlock, kSlotsOfBlock = T::kSlots / kBlocks;
  static_assert(kSlotsOfBlock == 8, "eight codes of a block are a lane's");

  static BRAID_DEVICE void encode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    BRAID_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const uint64_t block = first / kBlock + b;
      if (block >= job.plan.scale_count) return;
      uint32_t largest = 0;
      BRAID_UNROLL
      for (int s = 0; s < 8; ++s) {
        const uint32_t bits = magnitude_bits(tile.at[8 * b + s]);
        largest = bits > largest ? bits : largest;
      }
      const Scale scale = scale_of(__reduce_max_sync(~0u, largest), Code::kMost);
      if (lane == 0) reinterpret_cast<float*>(job.message + job.plan.scales_at)[block] = scale.scale;
      int codes[8];
      BRAID_UNROLL
      for (int s = 0; s < 8; ++s) {
        const auto position = static_cast<uint32_t>(first + T::place(8 * b + s, lane));
        float& value = tile.at[8 * b + s];
        codes[s] = scale.inverse != 0 ? Code::code(value, scale.inverse, position, job.seed) : 0;
        value = left_of(value, Code::value(codes[s], scale.scale));
      }
      Code::put(job.message + job.plan.data_at + block * Code::kBlockBytes, lane, codes);
    }
  }

  static BRAID_DEVICE void decode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    int codes[kBlocks][8] = {};
    float scales[kBlocks] = {};
    BRAID_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const uint64_t block = first / kBlock + b;
      if (block < job.plan.scale_count) {
        scales[b] = reinterpret_cast<const float*>(job.message + job.plan.scales_at)[block];
        Code::get(job.message + job.plan.data_at + block * Code::kBlockBytes, lane, codes[b]);
      }
    }
    BRAID_UNROLL
    for (int s = 0; s < T::kSlots; ++s) tile.at[s] = Code::value(codes[s / 8][s % 8], scales[s / 8]);
  }
};

// ---- sign: a tile is a block, a slot one of its rows, a warp's vote a row of bits

struct SignForm {
  using T = Columns;
  static_assert(T::kElements == kSignBlock && kWarp == kSignLanes && T::kSlots == kSignRows);

  static BRAID_DEVICE void encode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    float sum = 0;
    BRAID_UNROLL
    for (int row = 0; row < kSignRows; ++row) sum += float_of(magnitude_bits(tile.at[row]));
    BRAID_UNROLL
    for (int step = kSignLanes / 2; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    sum = __shfl_sync(~0u, sum, 0);
    const uint64_t rest = job.elements - first, block = first / kSignBlock;
    const float scale = sign_scale_of(sum, rest < kSignBlock ? static_cast<int>(rest) : kSignBlock);
    const bool finite = is_finite(scale);
    uint32_t votes = 0;  // of row `lane`
    BRAID_UNROLL
    for (int row = 0; row < kSignRows; ++row) {
      float& value = tile.at[row];
      const bool negative = bits_of(value) >> 31 != 0 && finite;
      const uint32_t bits = __ballot_sync(~0u, negative);
      if (lane == static_cast<uint32_t>(row)) votes = bits;
      value = left_of(value, signed_scale(scale, negative));
    }
    if (lane == 0) reinterpret_cast<float*>(job.message + job.plan.scales_at)[block] = scale;
    reinterpret_cast<uint32_t*>(job.message + job.plan.data_at)[block * kSignRows + lane] = votes;
  }

  static BRAID_DEVICE void decode(const Job& job, uint64_t first, uint32_t lane, T& tile) {
    const uint64_t block = first / kSignBlock;
    const float scale = reinterpret_cast<const float*>(job.message + job.plan.scales_at)[block];
    const uint32_t votes =
        reinterpret_cast<const uint32_t*>(job.message + job.plan.data_at)[block * kSignRows + lane];
    BRAID_UNROLL
    for (int row = 0; row < kSignRows; ++row) {
      tile.at[row] = signed_scale(scale, (__shfl_sync(~0u, votes, row) >> lane & 1) != 0);
    }
  }
};

// ---- What the kernels do

template <class Form>
BRAID_DEVICE void encode_dense(const Job& job) {
  using T = typename Form::T;
  write_frame(job);
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * T::kElements; first < job.elements; first += all_warps() * T::kElements) {
    T tile;
    load_scaled(job, first, lane, tile);
    Form::encode(job, first, lane, tile);
    if (job.left != nullptr) store_floats(job.left, first, job.elements, lane, tile);
  }
}

template <class T>
BRAID_DEVICE void put_scaled(const Job& job, uint64_t first, uint32_t lane, T& tile) {
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) tile.at[s] *= job.scale;
  put_tensors(job, first, lane, tile);
}

template <class Form>
BRAID_DEVICE void decode_dense(const Job& job) {
  using T = typename Form::T;
  const bool right = has_header(job, false);
  if (thread_of() == 0) *job.flag = right ? 0 : 1;
  if (!right) return;
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * T::kElements; first < job.elements; first += all_warps() * T::kElements) {
    T tile;
    Form::decode(job, first, lane, tile);
    put_scaled(job, first, lane, tile);
  }
}

// left = tensors * scale + floats.
BRAID_DEVICE void pack(const Job& job) {
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile;
    load_scaled(job, first, lane, tile);
    store_floats(job.left, first, job.elements, lane, tile);
  }
}

// tensors = floats * scale, or += it.
BRAID_DEVICE void unpack(const Job& job) {
  const uint32_t lane = lane_of();
  for (uint64_t first = warp_of() * Quads::kElements; first < job.elements;
       first += all_warps() * Quads::kElements) {
    Quads tile;
    load_floats(job.floats, first, job.elements, lane, tile);
    put_scaled(job, first, lane, tile);
  }
}

}  // namespace braid::cuda
