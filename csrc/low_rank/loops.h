// SPDX-License-Identifier: Apache-2.0
// The products of low_rank.h and the table of all kernels. Included once by each kernels_<instruction set>.cc;
// base/vectors.h has the rules for such files.
#pragma once

#include "low_rank/outer.h"

namespace braid {
namespace {

void add_floats(const float* from, size_t n, float* to) {
  for (size_t j = 0; j < n; ++j) to[j] = from[j] + to[j];
}

void project(const LowRankShape& shape, const float* gradient, float* matrix, const float* sent, const float* q,
             LowRankRange rows, float* p) {
  for (size_t i = rows.begin; i < rows.end; i += kGroupRows) {
    const size_t count = least(kGroupRows, rows.end - i);
    const GroupFactors factors(sent, shape.rows, sent == nullptr ? 0 : shape.rank, i, count);
    float sums[kMostLowRank * kGroupRows] = {};
    for (size_t j = 0; j < shape.columns; j += kTileColumns) {
      const size_t n = least(kTileColumns, shape.columns - j), at = i * shape.columns + j;
      if (sent != nullptr) {
        outer_group<SubtractAndAdd>(factors, q + j, shape.columns, shape.rank, gradient + at, matrix + at,
                                    shape.columns, count, n);
      } else {
        for (size_t row = 0; row < count; ++row) {
          const size_t from = at + row * shape.columns;
          add_floats(gradient + from, n, matrix + from);
        }
      }
      dot_rows(matrix + at, shape.columns, count, q + j, shape.columns, shape.rank, n, sums);
    }
    for (size_t k = 0; k < shape.rank; ++k) {
      for (size_t row = 0; row < count; ++row) p[k * shape.rows + i + row] = sums[k * kGroupRows + row];
    }
  }
}

void gather(const LowRankShape& shape, const float* matrix, const float* p, LowRankRange columns, float* q) {
  // With so many rows, a tile of q is read from the first-level cache for all but the first rows.
  constexpr size_t kBlockRows = 8 * kGroupRows;
  for (size_t k = 0; k < shape.rank; ++k) {
    for (size_t j = columns.begin; j < columns.end; ++j) q[k * shape.columns + j] = 0;
  }
  for (size_t block = 0; block < shape.rows; block += kBlockRows) {
    const size_t end = least(block + kBlockRows, shape.rows);
    for (size_t j = columns.begin; j < columns.end; j += kTileColumns) {
      const size_t n = least(kTileColumns, columns.end - j);
      for (size_t i = block; i < end; i += kGroupRows) {
        const size_t count = least(kGroupRows, end - i);
        const GroupFactors factors(p, shape.rows, shape.rank, i, count);
        const float* const from = matrix + i * shape.columns + j;
        if (count == kGroupRows) {
          gather_components<kGroupRows>(from, shape.columns, factors.of, shape.rank, q + j, shape.columns, n);
          continue;
        }
        for (size_t row = 0; row < count; ++row) {
          gather_components<1>(from + row * shape.columns, shape.columns, factors.of + row, shape.rank, q + j,
                               shape.columns, n);
        }
      }
    }
  }
}

void subtract(float factor, const float* a, size_t n, float* from) {
  for (size_t i = 0; i < n; ++i) from[i] -= factor * a[i];
}

void scale(float factor, size_t n, float* values) {
  for (size_t i = 0; i < n; ++i) values[i] *= factor;
}

uint32_t largest(const float* values, size_t n) {
  int32_t most = 0;  // signed, because every CPU compares signed vectors; magnitudes have no sign
  for (size_t i = 0; i < n; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, values[i]) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return static_cast<uint32_t>(most);
}

constexpr LowRankKernels all_low_rank_kernels() {
  return {project, gather, outer<Replace>, outer<Subtract>, dot, subtract, scale, largest};
}

}  // namespace
}  // namespace braid
