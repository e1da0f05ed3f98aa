// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX2, FMA and F16C.
#define BRAID_VECTOR_BYTES 32
#include "reduce/loops.h"

namespace braid {

constinit const ReduceKernels kAvx2ReduceKernels = all_kernels();

}  // namespace braid
