// SPDX-License-Identifier: Apache-2.0
// Matrices as products of two thin factors, M ~ P Q^T: the arithmetic of PowerSGD (Vogels et al. 2019).
//
//   M = gradient + error   P = M Q   [mean over ranks; orthonormalize]   Q = M^T P   [mean]   gradient = P Q^T
//
// The error of the next step is M - P Q^T. It is not stored: the next project() subtracts P Q^T while it reads M.
// This saves one pass that reads and writes all of M.
//
// All arithmetic is in float32; rounded.h has the passes for gradients of 16 bits. All instruction sets
// (base/instruction_set.h) give the same bits. So do all cuts into ranges, which any number of threads may
// compute. Only the payload of a NaN may differ. Sums are made in parts, so that a sum of n terms has the rounding
// error of a far shorter sum. Infinity and NaN spread as in any sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

inline constexpr size_t kMostLowRank = 64;

// A factor is stored component after component: P is rank x rows, Q is rank x columns floats.
struct LowRankShape {
  size_t rows;
  size_t columns;
  size_t rank;  // 1 to kMostLowRank
};

struct LowRankRange {
  size_t begin;
  size_t end;
};

// For the rows: matrix = gradient + (matrix - sent Q^T); then p = matrix Q. `sent` is a P; if it is null, nothing
// is subtracted. REQUIRES here and below: memory that does not overlap.
void low_rank_project(const LowRankShape& shape, const float* gradient, float* matrix, const float* sent,
                      const float* q, LowRankRange rows, float* p);

// For the columns: q = matrix^T p.
void low_rank_gather(const LowRankShape& shape, const float* matrix, const float* p, LowRankRange columns,
                     float* q);

// For the rows: product = p q^T.
void low_rank_rebuild(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows,
                      float* product);

// For the rows: matrix -= p q^T. The elements of p q^T have the same bits as in low_rank_rebuild().
void low_rank_settle(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows, float* matrix);

// Makes the components of a P orthonormal, in order (modified Gram-Schmidt, repeated if much cancels). A component
// in the span of earlier components, for example zeros, is replaced by another direction, which is always the
// same. Components beyond the number of rows become zeros. Returns false, and leaves p unchanged, if a number is
// not finite, or is 2^120 or more.
bool orthonormalize(std::span<float> p, size_t rows);

// Random numbers from [-1, 1); a seed gives the same numbers on every machine.
void draw_uniform(uint64_t seed, std::span<float> out);

}  // namespace braid
