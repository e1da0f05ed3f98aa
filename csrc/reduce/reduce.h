// SPDX-License-Identifier: Apache-2.0
// Element-wise reduction of k sources in one pass over memory, on the host. All vector widths (base/instruction_set.h)
// give the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace braid {

// target[i] = sources[0][i] op sources[1][i] op ..., combined in the order listed, for i in [0, count).
//
// kAvg adds like kSum; where `divisor` > 1 the finished sum is divided by it, and only then rounded to the dtype.
// Other ops ignore `divisor`. Floats of 16 and 8 bits are combined in float32 and rounded once per call (to nearest
// even). What float8_e4m3fn cannot hold, which has no infinity, becomes its largest number with that sign, as in
// torch since 2.12; the other floats become infinite. Integers wrap around modulo 2^bits; an integer average
// truncates toward zero; AVG of bool is kept a bool ("any"). bool: SUM, MAX and BOR are OR, PRODUCT, MIN and BAND
// are AND, and any non-zero byte counts as true; results are 0 or 1. MIN and MAX give NaN when any source is NaN,
// in any position, and hold -0 to be below +0. Every NaN result is the quiet one with neither sign nor payload
// (0x7f in 8 bits), so the order of two sources never shows in the bits. Both parts of a complex number are floats
// like others.
//
// REQUIRES: is_defined(dtype, op); sources.size() >= 1; every pointer valid for `count` elements, at any alignment; target is the same
// memory as a source or overlaps none. Threads may reduce into different targets at the same time.
void reduce(DType dtype, ReduceOp op, std::byte* target, std::span<const std::byte* const> sources, size_t count,
            int divisor = 1);

}  // namespace braid
