// SPDX-License-Identifier: Apache-2.0
#include "low_rank/low_rank.h"

#include "base/float_environment.h"
#include "base/instruction_set.h"
#include "low_rank/kernels.h"

namespace braid {
namespace {

// Indexed by InstructionSet.
constexpr const LowRankKernels* kLowRankKernels[kInstructionSetCount] = {
    &kBaselineLowRankKernels,
#if defined(__x86_64__)
    &kAvx2LowRankKernels,
    &kAvx512LowRankKernels,
#endif
};

}  // namespace

const LowRankKernels& low_rank_kernels() { return *kLowRankKernels[static_cast<int>(instruction_set())]; }

void low_rank_project(const LowRankShape& shape, const float* gradient, float* matrix, const float* sent,
                      const float* q, LowRankRange rows, float* p) {
  const PlainFloats plain;
  low_rank_kernels().project(shape, gradient, matrix, sent, q, rows, p);
}

void low_rank_gather(const LowRankShape& shape, const float* matrix, const float* p, LowRankRange columns,
                     float* q) {
  const PlainFloats plain;
  low_rank_kernels().gather(shape, matrix, p, columns, q);
}

void low_rank_rebuild(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows,
                      float* product) {
  const PlainFloats plain;
  low_rank_kernels().rebuild(shape, p, q, rows, product);
}

void low_rank_settle(const LowRankShape& shape, const float* p, const float* q, LowRankRange rows, float* matrix) {
  const PlainFloats plain;
  low_rank_kernels().settle(shape, p, q, rows, matrix);
}

}  // namespace braid
