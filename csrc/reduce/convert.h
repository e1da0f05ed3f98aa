// SPDX-License-Identifier: Apache-2.0
// Floats of other widths to and from float32, with a factor, on the host. Instruction set and bits are those of
// reduce.h and base/half.h.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace braid {

// float64, float32, float16 and bfloat16.
bool is_convertible(DType dtype);

// out[i] = float32(from[i]) * scale; add_floats() adds that to out[i], as a second float32 operation. A float64 is
// rounded to nearest even, and infinite where float32 cannot hold it.
//
// REQUIRES, here and below: is_convertible(dtype); memory of that dtype, at any alignment, that the floats do not
// overlap.
void to_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out);
void add_floats(DType dtype, const std::byte* from, size_t count, float scale, float* out);

// to[i] = values[i] * scale, a float32, rounded to nearest even; infinite where the dtype cannot hold it. A NaN stays
// one.
void from_floats(DType dtype, const float* values, size_t count, float scale, std::byte* to);

}  // namespace braid
