// SPDX-License-Identifier: Apache-2.0
// Element-wise reduction of k sources in one pass over memory, on the host. All vector widths
// (base/instruction_set.h) give the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace braid {

// target[i] = sources[0][i] op sources[1][i] op ..., combined in the order listed, for i in [0, count).
//
// kAvg adds like kSum. If `divisor` > 1, the finished sum is divided by it, and only then rounded to the dtype.
// Other ops ignore `divisor`. Floats of 16 and 8 bits are combined in float32 and rounded once per call (to
// nearest even). float8_e4m3fn has no infinity: a number that it cannot hold becomes its largest number with the
// same sign, as in torch since 2.12. The other floats become infinite. Integers wrap around modulo 2^bits. An
// integer average truncates toward zero. bool: SUM, MAX, BOR and AVG ("any") are OR; PRODUCT, MIN and BAND are
// AND; BXOR is XOR. Every non-zero byte counts as true; results are 0 or 1. MIN and MAX give NaN if any source is
// NaN, in any position, and treat -0 as less than +0. Every NaN result is the quiet NaN without sign and payload
// (0x7f in 8 bits), so the order of two sources never shows in the bits. Both parts of a complex number are
// treated as floats.
//
// REQUIRES: is_defined(dtype, op); sources.size() >= 1; every pointer is valid for `count` elements, at any
// alignment; target is the same memory as a source, or overlaps none. Threads may reduce into different targets at
// the same time.
void reduce(DType dtype, ReduceOp op, std::byte* target, std::span<const std::byte* const> sources, size_t count,
            int divisor = 1);

}  // namespace braid
