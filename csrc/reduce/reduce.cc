// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.h"

#include "base/instruction_set.h"
#include "reduce/kernels.h"

namespace braid {
namespace {

// By InstructionSet.
constexpr const ReduceKernels* kKernels[kInstructionSetCount] = {
    &kBaselineReduceKernels,
#if defined(__x86_64__)
    &kAvx2ReduceKernels,
    &kAvx512ReduceKernels,
#endif
};

}  // namespace

void reduce(DType dtype, ReduceOp op, std::byte* target, std::span<const std::byte* const> sources, size_t count,
            int divisor) {
  if (op == ReduceOp::kAvg && divisor <= 1) op = ReduceOp::kSum;
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) {  // sums and averages go part by part
    dtype = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    count *= 2;
  }
  const ReduceKernels& kernels = *kKernels[static_cast<int>(instruction_set())];
  kernels.of[static_cast<size_t>(dtype)][static_cast<size_t>(op)](target, sources.data(), sources.size(), count,
                                                                  divisor);
}

}  // namespace braid
