// SPDX-License-Identifier: Apache-2.0
// The passes of low_rank.h for gradients of 16 bits: read as they are, while everything else stays float32. What is sent
// is P Q^T, rounded to 16 bits once, and so is what is subtracted: the error has what the rounding took away.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "low_rank/low_rank.h"

namespace braid {

// REQUIRES, here and below: float16 or bfloat16; memory that does not overlap, of 16 bits at any alignment.
void low_rank_project_rounded(DType dtype, const LowRankShape& shape, const std::byte* gradient, float* matrix,
                              const float* sent, const float* q, LowRankRange rows, float* p);

// Infinite where the dtype cannot hold it; of such an element no error is kept.
void low_rank_rebuild_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                              LowRankRange rows, std::byte* product);

void low_rank_settle_rounded(DType dtype, const LowRankShape& shape, const float* p, const float* q,
                             LowRankRange rows, float* matrix);

}  // namespace braid
