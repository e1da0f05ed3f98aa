// SPDX-License-Identifier: Apache-2.0
// Sums of products along rows. Included once by each kernels_<instruction set>.cc; base/vectors.h has the rules
// for such files.
//
// The order of a sum, on all CPUs: lane l of kSumLanes adds the products at l, l + kSumLanes, ... of a tile, then
// lane l takes what lane l + 8 has, then l + 4, 2, 1; tiles are added in order. A narrow CPU goes through a tile
// several times, with as many lanes each time as it has.
#pragma once

#include "base/vectors.h"
#include "low_rank/kernels.h"

namespace braid {
namespace {

using Floats = Vector<float>;

constexpr size_t kStep = kLanes<float>;
constexpr size_t kSumLanes = 16;
constexpr size_t kTileColumns = 1024;  // 4 rows of a tile are half of a first-level cache
constexpr size_t kGroupRows = 4;       // rows for which a part of a factor is read once
// Rows whose sums are in registers at the same time, for 4 components each: there are 32 registers, or 16.
constexpr size_t kDotRows = BRAID_VECTOR_BYTES == 64 ? 4 : 2;

template <class V = Floats>
V load_floats(const float* from) {
  return load_vector<V>(reinterpret_cast<const std::byte*>(from));
}
template <class V>
void store_floats(float* to, V value) {
  store_vector(reinterpret_cast<std::byte*>(to), value);
}

constexpr size_t least(size_t a, size_t b) { return a < b ? a : b; }

float sum_of_lanes(float* lanes) {
  for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// sums[k * kGroupRows + i] += row i . component k, over one tile.
template <size_t kRows, size_t kComponents>
void dot_tile(const float* rows, size_t row_stride, const float* components, size_t component_stride, size_t n,
              float* sums) {
  alignas(64) float lanes[kRows][kComponents][kSumLanes];
  alignas(64) float row_rest[kRows][kSumLanes] = {}, component_rest[kComponents][kSumLanes] = {};
  const size_t whole = n / kSumLanes * kSumLanes;
  if (whole < n) {
    for (size_t i = 0; i < kRows; ++i) {
      __builtin_memcpy(row_rest[i], rows + i * row_stride + whole, (n - whole) * sizeof(float));
    }
    for (size_t k = 0; k < kComponents; ++k) {
      __builtin_memcpy(component_rest[k], components + k * component_stride + whole, (n - whole) * sizeof(float));
    }
  }
  for (size_t lane = 0; lane < kSumLanes; lane += kStep) {
    Floats sum[kRows][kComponents] = {};
    const auto add = [&](const float* row, size_t stride, const float* component, size_t other_stride)
                         __attribute__((always_inline)) {
                           Floats factors[kComponents];
                           for (size_t k = 0; k < kComponents; ++k)
                             factors[k] = load_floats(component + k * other_stride);
                           for (size_t i = 0; i < kRows; ++i) {
                             const Floats values = load_floats(row + i * stride);
                             for (size_t k = 0; k < kComponents; ++k) sum[i][k] += values * factors[k];
                           }
                         };
    for (size_t j = lane; j < whole; j += kSumLanes) add(rows + j, row_stride, components + j, component_stride);
    if (whole < n) add(&row_rest[0][lane], kSumLanes, &component_rest[0][lane], kSumLanes);
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t k = 0; k < kComponents; ++k) store_floats(&lanes[i][k][lane], sum[i][k]);
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t k = 0; k < kComponents; ++k) sums[k * kGroupRows + i] += sum_of_lanes(lanes[i][k]);
  }
}

// The same for up to kGroupRows rows and any number of components.
template <size_t kRows>
void dot_some(const float* rows, size_t row_stride, const float* components, size_t stride, size_t rank, size_t n,
              float* sums) {
  size_t k = 0;
  for (; k + 4 <= rank; k += 4)
    dot_tile<kRows, 4>(rows, row_stride, components + k * stride, stride, n, sums + k * kGroupRows);
  if (k + 2 <= rank) {
    dot_tile<kRows, 2>(rows, row_stride, components + k * stride, stride, n, sums + k * kGroupRows);
    k += 2;
  }
  if (k < rank) dot_tile<kRows, 1>(rows, row_stride, components + k * stride, stride, n, sums + k * kGroupRows);
}
void dot_rows(const float* rows, size_t row_stride, size_t count, const float* components, size_t stride,
              size_t rank, size_t n, float* sums) {
  size_t i = 0;
  for (; i + kDotRows <= count; i += kDotRows) {
    dot_some<kDotRows>(rows + i * row_stride, row_stride, components, stride, rank, n, sums + i);
  }
  for (; i < count; ++i) dot_some<1>(rows + i * row_stride, row_stride, components, stride, rank, n, sums + i);
}

float dot(const float* a, const float* b, size_t n) {
  float sum = 0;
  for (size_t j = 0; j < n; j += kTileColumns) {
    dot_tile<1, 1>(a + j, 0, b + j, 0, least(kTileColumns, n - j), &sum);
  }
  return sum;
}

}  // namespace
}  // namespace braid
