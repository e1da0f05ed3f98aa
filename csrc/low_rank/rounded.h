// SPDX-License-Identifier: Apache-2.0
// The passes of low_rank.h for gradients of 16 bits. Gradients are read in 16 bits; all other data is float32. The
// result is P Q^T, rounded to 16 bits once. The same rounded product is subtracted, so the error contains the
// rounding loss.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "low_rank/low_rank.h"

namespace braid {

// REQUIRES, here and below: dtype is float16 or bfloat16; memory does not overlap. 16-bit data may have any
// alignment.
void low_rank_project_rounded(DType dtype, const LowRankShape& shape, const std::byte* gradient, float* matrix,
                              const float* sent, const float* q, LowRankRange rows, float* p);

// An element is infinite if the dtype cannot hold it. Then no error is kept for this element.
void low_rank_rebuild_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                              LowRankRange rows, std::byte* product);

void low_rank_settle_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                             LowRankRange rows, float* matrix);

}  // namespace braid
