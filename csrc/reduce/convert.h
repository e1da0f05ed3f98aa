// SPDX-License-Identifier: Apache-2.0
// Converts floats of other widths to and from float32, with a factor, on the host. All vector widths
// (base/instruction_set.h) give the same bits as base/half.h.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace braid {

// True for float64, float32, float16 and bfloat16.
bool is_convertible(DType dtype);

// out[i] = float32(from[i]) * scale. add_floats() adds this product to out[i], as a second float32 operation. A
// float64 is rounded to nearest even, and becomes infinite if float32 cannot hold it.
//
// REQUIRES, here and below: is_convertible(dtype). `from` and `to` may have any alignment, and must not overlap
// the floats.
void to_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out);
void add_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out);

// to[i] = values[i] * scale, computed in float32 and rounded to nearest even. It is infinite if the dtype cannot
// hold it. A NaN stays a NaN.
void from_floats(DType dtype, const float* values, size_t count, float scale, std::byte* to);

}  // namespace braid
