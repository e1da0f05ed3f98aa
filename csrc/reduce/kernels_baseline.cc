// SPDX-License-Identifier: Apache-2.0
// The kernels for the instructions every CPU of the architecture has.
#define BRAID_VECTOR_BYTES 16
#include "reduce/loops.h"

namespace braid {

constinit const ReduceKernels kBaselineReduceKernels = all_kernels();

}  // namespace braid
