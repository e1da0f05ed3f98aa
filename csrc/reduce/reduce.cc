// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.h"

#include "base/instruction_set.h"
#include "reduce/convert.h"
#include "reduce/kernels.h"

namespace braid {
namespace {

// Indexed by InstructionSet.
constexpr const ReduceKernels* kKernels[kInstructionSetCount] = {
    &kBaselineReduceKernels,
#if defined(__x86_64__)
    &kAvx2ReduceKernels,
    &kAvx512ReduceKernels,
#endif
};

// The kernels for the instruction set in use.
const ReduceKernels& kernels() { return *kKernels[static_cast<int>(instruction_set())]; }

const Conversions& conversions(DType dtype) { return kernels().conversions[static_cast<size_t>(dtype)]; }

}  // namespace

void reduce(DType dtype, ReduceOp op, std::byte* target, std::span<const std::byte* const> sources, size_t count,
            int divisor) {
  if (op == ReduceOp::kAvg && divisor <= 1) op = ReduceOp::kSum;
  if (dtype == DType::kComplex64 ||
      dtype == DType::kComplex128) {  // the two parts are summed or averaged separately
    dtype = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    count *= 2;
  }
  kernels().of[static_cast<size_t>(dtype)][static_cast<size_t>(op)](target, sources.data(), sources.size(), count,
                                                                    divisor);
}

bool is_convertible(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

void to_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out) {
  conversions(dtype).widen(from, count, scale, out);
}
void add_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out) {
  conversions(dtype).widen_and_add(from, count, scale, out);
}
void from_floats(DType dtype, const float* values, size_t count, float scale, std::byte* to) {
  conversions(dtype).narrow(values, count, scale, to);
}

}  // namespace braid
