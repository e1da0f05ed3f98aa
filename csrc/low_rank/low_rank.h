// SPDX-License-Identifier: Apache-2.0
// Matrices as products of two thin factors, M ~ P Q^T: the arithmetic of PowerSGD (Vogels et al. 2019).
//
//   M = gradient + error   P = M Q   [mean over ranks; orthonormalize]   Q = M^T P   [mean]   gradient = P Q^T
//
// The error of the next step is M - P Q^T. It is not written: the next project() subtracts P Q^T while it reads M,
// which saves reading and writing all of M once.
//
// All is in float32; rounded.h has the passes for gradients of 16 bits. All instruction sets (base/instruction_set.h) give the same bits, and so do all cuts into
// ranges, which may go to any number of threads; which NaN a NaN is may differ. Sums are made in parts, so that n
// terms are off by the roundings of a far shorter sum. What is not finite spreads as in any sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

inline constexpr size_t kMostLowRank = 64;

// A factor is kept component after component: P is rank x rows, Q is rank x columns floats.
struct LowRankShape {
  size_t rows;
  size_t columns;
  size_t rank;  // 1 to kMostLowRank
};

struct LowRankRange {
  size_t begin;
  size_t end;
};

// Of some rows: matrix = gradient + (matrix - sent Q^T), and p = matrix Q of the new matrix. `sent`, a P, may be
// null: nothing is subtracted. REQUIRES here and below: memory that does not overlap.
void low_rank_project(const LowRankShape& shape, const float* gradient, float* matrix, const float* sent,
                      const float* q, LowRankRange rows, float* p);

// Of some columns: q = matrix^T p.
void low_rank_gather(const LowRankShape& shape, const float* matrix, const float* p, LowRankRange columns,
                     float* q);

// Of some rows: product = p q^T.
void low_rank_rebuild(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows,
                      float* product);

// Of some rows: matrix -= p q^T, of which every element is what rebuild() writes.
void low_rank_settle(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows, float* matrix);

// Makes the components of a P orthonormal, in order (modified Gram-Schmidt, repeated where much cancels). What is in
// the span of those before it, as zeros are, becomes another direction, always the same. Components beyond the
// number of rows become zeros. False, and p is as it was, if a number is not finite, or is 2^120 or more.
bool orthonormalize(std::span<float> p, size_t rows);

// Random numbers from [-1, 1), the same everywhere for a seed.
void draw_uniform(uint64_t seed, std::span<float> out);

}  // namespace braid
