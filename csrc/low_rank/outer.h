// SPDX-License-Identifier: Apache-2.0
// Sums of components, each times a number per row. Every element of P Q^T is the sum over the components in order.
// Included once by each kernels_<instruction set>.cc; base/vectors.h has the rules for such files.
#pragma once

#include "low_rank/inner.h"

namespace braid {
namespace {

// How an element of P Q^T is used.
struct Replace {
  template <class V>
  static void at(V product, const float*, float* out) {
    store_floats(out, product);
  }
};
struct Subtract {
  template <class V>
  static void at(V product, const float*, float* out) {
    store_floats(out, load_floats<V>(out) - product);
  }
};
struct SubtractAndAdd {
  template <class V>
  static void at(V product, const float* added, float* out) {
    store_floats(out, load_floats<V>(added) + (load_floats<V>(out) - product));
  }
};

// Numbers of some rows, row after row within a component: [k * kGroupRows + i].
struct GroupFactors {
  float of[kMostLowRank * kGroupRows];

  GroupFactors(const float* p, size_t row_stride, size_t rank, size_t first, size_t count) {
    for (size_t k = 0; k < rank; ++k) {
      for (size_t i = 0; i < count; ++i) of[k * kGroupRows + i] = p[k * row_stride + first + i];
    }
  }
};

// Vectors of V, one after the other, of rows from `at` on.
template <class V, size_t kVectors, size_t kRows, class Use>
inline void outer_at(const float* factors, const float* q, size_t q_stride, size_t rank, const float* added,
                     float* out, size_t row_stride) {
  constexpr size_t kWidth = sizeof(V) / sizeof(float);
  V products[kRows][kVectors];
  for (size_t j = 0; j < kVectors; ++j) {
    const V values = load_floats<V>(q + j * kWidth);
    for (size_t i = 0; i < kRows; ++i) products[i][j] = values * factors[i];
  }
  for (size_t k = 1; k < rank; ++k) {
    for (size_t j = 0; j < kVectors; ++j) {
      const V values = load_floats<V>(q + k * q_stride + j * kWidth);
      for (size_t i = 0; i < kRows; ++i) products[i][j] += values * factors[k * kGroupRows + i];
    }
  }
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kVectors; ++j) {
      const size_t at = i * row_stride + j * kWidth;
      Use::at(products[i][j], added + at, out + at);
    }
  }
}

template <size_t kRows, class Use>
void outer_rows(const float* factors, const float* q, size_t q_stride, size_t rank, const float* added, float* out,
                size_t row_stride, size_t n) {
  constexpr size_t kVectors = 2;
  size_t j = 0;
  for (; j + kVectors * kStep <= n; j += kVectors * kStep) {
    outer_at<Floats, kVectors, kRows, Use>(factors, q + j, q_stride, rank, added + j, out + j, row_stride);
  }
  for (; j < n; ++j)
    outer_at<float, 1, kRows, Use>(factors, q + j, q_stride, rank, added + j, out + j, row_stride);
}

// For up to kGroupRows rows and n columns.
template <class Use>
void outer_group(const GroupFactors& factors, const float* q, size_t q_stride, size_t rank, const float* added,
                 float* out, size_t row_stride, size_t count, size_t n) {
  if (count == kGroupRows) {
    outer_rows<kGroupRows, Use>(factors.of, q, q_stride, rank, added, out, row_stride, n);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * row_stride;
    outer_rows<1, Use>(factors.of + i, q, q_stride, rank, added + at, out + at, row_stride, n);
  }
}

template <class Use>
void outer(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows, float* out) {
  for (size_t i = rows.begin; i < rows.end; i += kGroupRows) {
    const size_t count = least(kGroupRows, rows.end - i);
    const GroupFactors factors(p, shape.rows, shape.rank, i, count);
    float* const to = out + i * shape.columns;
    outer_group<Use>(factors, q, shape.columns, shape.rank, to, to, shape.columns, count, shape.columns);
  }
}

// q[k] += the sum of kRows rows, each times its number of component k.
template <size_t kRows, size_t kComponents>
void gather_rows(const float* rows, size_t row_stride, const float* factors, float* q, size_t q_stride, size_t n) {
  const auto step = [&]<class V>(V, size_t j) __attribute__((always_inline)) {
    V sums[kComponents];
    for (size_t i = 0; i < kRows; ++i) {
      const V values = load_floats<V>(rows + i * row_stride + j);
      for (size_t k = 0; k < kComponents; ++k) {
        const V product = values * factors[k * kGroupRows + i];
        sums[k] = i == 0 ? product : sums[k] + product;
      }
    }
    for (size_t k = 0; k < kComponents; ++k) {
      float* const to = q + k * q_stride + j;
      store_floats(to, load_floats<V>(to) + sums[k]);
    }
  };
  size_t j = 0;
  for (; j + kStep <= n; j += kStep) step(Floats{}, j);
  for (; j < n; ++j) step(float{}, j);
}
template <size_t kRows>
void gather_components(const float* rows, size_t row_stride, const float* factors, size_t rank, float* q,
                       size_t q_stride, size_t n) {
  const auto at = [&](size_t k) { return factors + k * kGroupRows; };
  size_t k = 0;
  for (; k + 4 <= rank; k += 4) gather_rows<kRows, 4>(rows, row_stride, at(k), q + k * q_stride, q_stride, n);
  if (k + 2 <= rank) {
    gather_rows<kRows, 2>(rows, row_stride, at(k), q + k * q_stride, q_stride, n);
    k += 2;
  }
  if (k < rank) gather_rows<kRows, 1>(rows, row_stride, at(k), q + k * q_stride, q_stride, n);
}

}  // namespace
}  // namespace braid
