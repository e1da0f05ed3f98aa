// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX-512 F, BW, VL and DQ.
#define BRAID_VECTOR_BYTES 64
#include "low_rank/loops.h"

namespace braid {

constinit const LowRankKernels kAvx512LowRankKernels = all_low_rank_kernels();

}  // namespace braid
