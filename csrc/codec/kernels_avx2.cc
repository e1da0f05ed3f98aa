// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX2, FMA and F16C.
#define BRAID_VECTOR_BYTES 32
#include "codec/loops.h"

namespace braid {

constinit const CodecKernels kAvx2CodecKernels = all_kernels();

}  // namespace braid
