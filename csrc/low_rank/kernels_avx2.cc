// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX2, FMA and F16C.
#define BRAID_VECTOR_BYTES 32
#include "low_rank/loops.h"

namespace braid {

constinit const LowRankKernels kAvx2LowRankKernels = all_low_rank_kernels();

}  // namespace braid
