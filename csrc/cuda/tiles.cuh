// SPDX-License-Identifier: Apache-2.0
// Tiles: what one warp handles at a time, held in registers. From and to tensors (by a table) and runs of floats,
// with 16 bytes a lane where they lie at such multiples, an element at a time where not.
#pragma once

#include "base/half.h"
#include "codec/formulas.h"
#include "cuda/job.h"

#define BRAID_DEVICE __device__ __forceinline__
// BRAID_UNROLL: what is in an array that is indexed by constants alone is in registers. BRAID_RARE: one copy of
// what is rare instead of one in each kernel.
#if defined(__CUDACC__)
#define BRAID_UNROLL _Pragma("unroll")
#define BRAID_RARE __device__ __noinline__
#else
#define BRAID_UNROLL
#define BRAID_RARE inline
#endif

namespace braid::cuda {

// kGroups groups, each of 32 lanes times kWide neighbours.
template <int kWideOf, int kGroupsOf>
struct Tile {
  static constexpr int kWide = kWideOf, kGroups = kGroupsOf, kSlots = kWide * kGroups;
  static constexpr uint32_t kElements = kWarp * kSlots;
  float at[kSlots];

  static BRAID_DEVICE uint32_t place(int slot, uint32_t lane) {
    return (static_cast<uint32_t>(slot / kWide) * kWarp + lane) * kWide + static_cast<uint32_t>(slot % kWide);
  }
};
using Quads = Tile<4, 4>;     // 512 elements: two blocks of the codecs with a scale
using Columns = Tile<1, 32>;  // 1024: a block of sign, whose lanes are the warp's

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Together {
  T at[kCount];
};

struct Float32 {
  using Bits = float;
  static BRAID_DEVICE float widen(float value) { return value; }
  static BRAID_DEVICE float narrow(float value) { return value; }
};
struct Float16 {
  using Bits = uint16_t;
  static BRAID_DEVICE float widen(uint16_t half) { return float_from_float16(half); }
  static BRAID_DEVICE uint16_t narrow(float value) { return float16_from_float(value); }
};
struct BFloat16 {
  using Bits = uint16_t;
  static BRAID_DEVICE float widen(uint16_t half) { return float_from_bfloat16(half); }
  static BRAID_DEVICE uint16_t narrow(float value) { return bfloat16_from_float(value); }
};

BRAID_DEVICE uint32_t bytes_of(Element element) { return element == Element::kFloat32 ? 4 : 2; }

// ---- Whole tiles at suitable addresses

template <class E, class T>
BRAID_DEVICE void load_run(uint64_t address, uint32_t lane, T& tile) {
  using Vector = Together<typename E::Bits, T::kWide>;
  const Vector* from = reinterpret_cast<const Vector*>(address) + lane;
  Vector loaded[T::kGroups];
  BRAID_UNROLL
  for (int g = 0; g < T::kGroups; ++g) loaded[g] = from[g * kWarp];
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) tile.at[s] = E::widen(loaded[s / T::kWide].at[s % T::kWide]);
}

template <class E, class T>
BRAID_DEVICE void store_run(uint64_t address, uint32_t lane, const T& tile) {
  using Vector = Together<typename E::Bits, T::kWide>;
  Vector* to = reinterpret_cast<Vector*>(address) + lane;
  BRAID_UNROLL
  for (int g = 0; g < T::kGroups; ++g) {
    Vector stored;
    BRAID_UNROLL
    for (int w = 0; w < T::kWide; ++w) stored.at[w] = E::narrow(tile.at[g * T::kWide + w]);
    to[g * kWarp] = stored;
  }
}

// ---- Whole tiles at any address

template <class E, class T>
BRAID_DEVICE void load_odd(uint64_t address, uint32_t lane, T& tile) {
  const auto* from = reinterpret_cast<const typename E::Bits*>(address);
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) tile.at[s] = E::widen(from[T::place(s, lane)]);
}

template <class E, class T>
BRAID_DEVICE void store_odd(uint64_t address, uint32_t lane, const T& tile) {
  auto* to = reinterpret_cast<typename E::Bits*>(address);
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) to[T::place(s, lane)] = E::narrow(tile.at[s]);
}

// ---- Single elements of tensors

BRAID_DEVICE uint64_t address_of(const Row& row, uint64_t i) {
  return row.address + (i - row.begin) * bytes_of(row.element);
}

BRAID_DEVICE float load_one(const Row& row, uint64_t i) {
  const uint64_t address = address_of(row, i);
  if (row.element == Element::kFloat32) return *reinterpret_cast<const float*>(address);
  const uint16_t half = *reinterpret_cast<const uint16_t*>(address);
  return row.element == Element::kFloat16 ? Float16::widen(half) : BFloat16::widen(half);
}

BRAID_DEVICE void store_one(const Row& row, uint64_t i, float value) {
  const uint64_t address = address_of(row, i);
  if (row.element == Element::kFloat32) {
    *reinterpret_cast<float*>(address) = value;
  } else {
    *reinterpret_cast<uint16_t*>(address) =
        row.element == Element::kFloat16 ? Float16::narrow(value) : BFloat16::narrow(value);
  }
}

BRAID_DEVICE void put_one(const Job& job, const Row& row, uint64_t i, float value) {
  store_one(row, i, job.add != 0 ? load_one(row, i) + value : value);
}

// REQUIRES: i < job.elements.
BRAID_DEVICE const Row* row_at(const Job& job, uint64_t i) {
  const Row* rows = job.row_count <= kInlineRows ? job.rows : job.far_rows;
  uint32_t low = 0, high = job.row_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (rows[middle].begin <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return rows + low;
}

// ---- Tiles. `first`: a multiple of their size. Places past the end read as 0 and are not written. Where a tile
// lies across tensors each element is looked up.

template <class T>
BRAID_DEVICE bool is_whole(const Row* row, uint64_t first) {
  return first + T::kElements <= row[1].begin;
}

// One tensor whose size is no multiple of 4 makes addresses of all after it odd.
template <class T>
BRAID_DEVICE bool is_odd(const Row* row, uint64_t address) {
  return address % (T::kWide * bytes_of(row->element)) != 0;
}

template <class T>
BRAID_RARE void load_each(const Job& job, const Row* row, uint64_t first, uint32_t lane, T& tile) {
  for (int s = 0; s < T::kSlots; ++s) {
    const uint64_t i = first + T::place(s, lane);
    tile.at[s] = 0;
    if (i < job.elements) {
      while (i >= row[1].begin) ++row;
      tile.at[s] = load_one(*row, i);
    }
  }
}

template <class T>
BRAID_RARE void put_each(const Job& job, const Row* row, uint64_t first, uint32_t lane, const T& tile) {
  for (int s = 0; s < T::kSlots; ++s) {
    const uint64_t i = first + T::place(s, lane);
    if (i < job.elements) {
      while (i >= row[1].begin) ++row;
      put_one(job, *row, i, tile.at[s]);
    }
  }
}

template <class E, class T>
BRAID_DEVICE void load_whole(uint64_t address, bool odd, uint32_t lane, T& tile) {
  odd ? load_odd<E>(address, lane, tile) : load_run<E>(address, lane, tile);
}

template <class E, class T>
BRAID_DEVICE void store_whole(uint64_t address, bool odd, uint32_t lane, const T& tile) {
  odd ? store_odd<E>(address, lane, tile) : store_run<E>(address, lane, tile);
}

template <class T>
BRAID_DEVICE void load_tensors(const Job& job, uint64_t first, uint32_t lane, T& tile) {
  const Row* row = row_at(job, first);
  if (is_whole<T>(row, first)) {
    const uint64_t address = address_of(*row, first);
    const bool odd = is_odd<T>(row, address);
    if (row->element == Element::kFloat32) {
      load_whole<Float32>(address, odd, lane, tile);
    } else if (row->element == Element::kFloat16) {
      load_whole<Float16>(address, odd, lane, tile);
    } else {
      load_whole<BFloat16>(address, odd, lane, tile);
    }
    return;
  }
  T in_memory;  // `tile` stays in registers
  load_each(job, row, first, lane, in_memory);
  tile = in_memory;
}

// Adds, if the job says so.
template <class T>
BRAID_DEVICE void put_tensors(const Job& job, uint64_t first, uint32_t lane, T& tile) {
  const Row* row = row_at(job, first);
  if (is_whole<T>(row, first)) {
    if (job.add != 0) {
      T old;
      load_tensors(job, first, lane, old);
      BRAID_UNROLL
      for (int s = 0; s < T::kSlots; ++s) tile.at[s] = old.at[s] + tile.at[s];
    }
    const uint64_t address = address_of(*row, first);
    const bool odd = is_odd<T>(row, address);
    if (row->element == Element::kFloat32) {
      store_whole<Float32>(address, odd, lane, tile);
    } else if (row->element == Element::kFloat16) {
      store_whole<Float16>(address, odd, lane, tile);
    } else {
      store_whole<BFloat16>(address, odd, lane, tile);
    }
    return;
  }
  const T in_memory = tile;
  put_each(job, row, first, lane, in_memory);
}

template <class T>
BRAID_DEVICE bool is_whole(const float* floats, uint64_t first, uint64_t elements) {
  return first + T::kElements <= elements && reinterpret_cast<uint64_t>(floats) % (T::kWide * sizeof(float)) == 0;
}

template <class T>
BRAID_DEVICE void load_floats(const float* floats, uint64_t first, uint64_t elements, uint32_t lane, T& tile) {
  if (is_whole<T>(floats, first, elements)) {
    load_run<Float32>(reinterpret_cast<uint64_t>(floats + first), lane, tile);
    return;
  }
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) {
    const uint64_t i = first + T::place(s, lane);
    tile.at[s] = i < elements ? floats[i] : 0.0f;
  }
}

template <class T>
BRAID_DEVICE void store_floats(float* floats, uint64_t first, uint64_t elements, uint32_t lane, const T& tile) {
  if (is_whole<T>(floats, first, elements)) {
    store_run<Float32>(reinterpret_cast<uint64_t>(floats + first), lane, tile);
    return;
  }
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) {
    const uint64_t i = first + T::place(s, lane);
    if (i < elements) floats[i] = tile.at[s];
  }
}

// What is to be encoded: tensors * scale + floats.
template <class T>
BRAID_DEVICE void load_scaled(const Job& job, uint64_t first, uint32_t lane, T& tile) {
  load_tensors(job, first, lane, tile);
  BRAID_UNROLL
  for (int s = 0; s < T::kSlots; ++s) tile.at[s] *= job.scale;
  if (job.floats != nullptr) {
    T added;
    load_floats(job.floats, first, job.elements, lane, added);
    BRAID_UNROLL
    for (int s = 0; s < T::kSlots; ++s) tile.at[s] += added.at[s];
  }
  if (first + T::kElements > job.elements) {  // 0 * scale may be a NaN
    BRAID_UNROLL
    for (int s = 0; s < T::kSlots; ++s) {
      if (first + T::place(s, lane) >= job.elements) tile.at[s] = 0;
    }
  }
}

BRAID_DEVICE uint32_t lane_of() { return threadIdx.x % kWarp; }
BRAID_DEVICE uint64_t warp_of() { return static_cast<uint64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; }
BRAID_DEVICE uint64_t all_warps() { return static_cast<uint64_t>(gridDim.x) * kWarps; }
BRAID_DEVICE uint64_t thread_of() { return static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; }
BRAID_DEVICE uint64_t all_threads() { return static_cast<uint64_t>(gridDim.x) * kThreads; }

}  // namespace braid::cuda
