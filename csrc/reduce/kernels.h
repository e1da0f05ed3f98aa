// SPDX-License-Identifier: Apache-2.0
// What the files built for one instruction set each give to reduce.cc: a table of kernels.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace braid {

// As reduce(): k sources of `count` elements into target. Only the averages look at `divisor`, which is then > 1.
using ReduceKernel = void (*)(std::byte* target, const std::byte* const* sources, size_t k, size_t count,
                              int divisor);

// As to_floats() and add_floats(), and from_floats().
using WidenKernel = void (*)(const std::byte* from, size_t count, float scale, float* out);
using NarrowKernel = void (*)(const float* values, size_t count, float scale, std::byte* to);
struct Conversions {
  WidenKernel widen;
  WidenKernel widen_and_add;
  NarrowKernel narrow;
};

// Nothing where is_defined() or is_convertible() says no, nor reductions for complex numbers, which reduce() takes as
// twice as many floats.
struct ReduceKernels {
  ReduceKernel of[kDTypeCount][kReduceOpCount];
  Conversions conversions[kDTypeCount];
};

extern const ReduceKernels kBaselineReduceKernels;
extern const ReduceKernels kAvx2ReduceKernels;    // x86-64 only
extern const ReduceKernels kAvx512ReduceKernels;  // x86-64 only

}  // namespace braid
