// SPDX-License-Identifier: Apache-2.0
// Matrices to multiply, and the products by their definition in csrc/low_rank: plain loops, one float at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <ostream>
#include <vector>

#include "low_rank/low_rank.h"

namespace braid::testing {

using Numbers = std::vector<float>;

// In [-1, 1), some of them large, some subnormal, some zero.
inline Numbers mixed_numbers(size_t n, uint64_t seed) {
  Numbers numbers(n);
  draw_uniform(seed, numbers);
  for (size_t i = 0; i < n; i += 7) numbers[i] *= i % 2 == 0 ? 1e10f : 1e-39f;
  for (size_t i = 3; i < n; i += 11) numbers[i] = 0;
  return numbers;
}
inline Numbers even_numbers(size_t n, uint64_t seed) {
  Numbers numbers(n);
  draw_uniform(seed, numbers);
  return numbers;
}

inline bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Of n numbers each, `stride` apart in b.
inline float reference_dot(const float* a, const float* b, size_t n) {
  float sum = 0;
  for (size_t tile = 0; tile < n; tile += 1024) {
    float lanes[16] = {};
    for (size_t j = tile; j < std::min(n, tile + 1024); ++j) lanes[(j - tile) % 16] += a[j] * b[j];
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sum += lanes[0];
  }
  return sum;
}

inline Numbers reference_rebuilt(const LowRankShape& shape, const Numbers& p, const Numbers& q) {
  Numbers product(shape.rows * shape.columns);
  for (size_t i = 0; i < shape.rows; ++i) {
    for (size_t j = 0; j < shape.columns; ++j) {
      float sum = q[j] * p[i];
      for (size_t k = 1; k < shape.rank; ++k) sum += q[k * shape.columns + j] * p[k * shape.rows + i];
      product[i * shape.columns + j] = sum;
    }
  }
  return product;
}

inline Numbers reference_projected(const LowRankShape& shape, const Numbers& matrix, const Numbers& q) {
  Numbers p(shape.rows * shape.rank);
  for (size_t k = 0; k < shape.rank; ++k) {
    for (size_t i = 0; i < shape.rows; ++i) {
      p[k * shape.rows + i] =
          reference_dot(matrix.data() + i * shape.columns, q.data() + k * shape.columns, shape.columns);
    }
  }
  return p;
}

// Four rows are added up before the sum gets them; what is left in the end comes row by row.
inline Numbers reference_gathered(const LowRankShape& shape, const Numbers& matrix, const Numbers& p) {
  Numbers q(shape.columns * shape.rank);
  for (size_t i = 0; i < shape.rows;) {
    const size_t count = i + 4 <= shape.rows ? 4 : 1;
    for (size_t k = 0; k < shape.rank; ++k) {
      for (size_t j = 0; j < shape.columns; ++j) {
        float sum = matrix[i * shape.columns + j] * p[k * shape.rows + i];
        for (size_t row = i + 1; row < i + count; ++row) {
          sum += matrix[row * shape.columns + j] * p[k * shape.rows + row];
        }
        q[k * shape.columns + j] += sum;
      }
    }
    i += count;
  }
  return q;
}

}  // namespace braid::testing

namespace braid {

inline std::ostream& operator<<(std::ostream& out, const LowRankShape& shape) {
  return out << shape.rows << " x " << shape.columns << ", rank " << shape.rank;
}

}  // namespace braid
