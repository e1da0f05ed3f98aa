// SPDX-License-Identifier: Apache-2.0
// The kernels for the instructions every CPU of the architecture has.
#define BRAID_VECTOR_BYTES 16
#include "low_rank/loops.h"

namespace braid {

constinit const LowRankKernels kBaselineLowRankKernels = all_low_rank_kernels();

}  // namespace braid
