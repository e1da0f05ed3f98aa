// SPDX-License-Identifier: Apache-2.0
// The table of kernels that each kernels_<instruction set>.cc gives to reduce.cc.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace braid {

// Does the same as reduce(): k sources of `count` elements into target. Only averages use `divisor`, which is then
// > 1.
using ReduceKernel = void (*)(std::byte* target, const std::byte* const* sources, size_t k, size_t count,
                              int divisor);

// Do the same as to_floats() and add_floats(), and as from_floats().
using WidenKernel = void (*)(const std::byte* from, size_t count, float scale, float* out);
using NarrowKernel = void (*)(const float* values, size_t count, float scale, std::byte* to);
struct Conversions {
  WidenKernel widen;
  WidenKernel widen_and_add;
  NarrowKernel narrow;
};

// An entry is null if is_defined() or is_convertible() is false. Reductions of complex numbers are null, too,
// because reduce() treats them as twice as many floats.
struct ReduceKernels {
  ReduceKernel of[kDTypeCount][kReduceOpCount];
  Conversions conversions[kDTypeCount];
};

extern const ReduceKernels kBaselineReduceKernels;
extern const ReduceKernels kAvx2ReduceKernels;    // x86-64 only
extern const ReduceKernels kAvx512ReduceKernels;  // x86-64 only

}  // namespace braid
