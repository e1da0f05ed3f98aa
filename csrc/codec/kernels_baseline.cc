// SPDX-License-Identifier: Apache-2.0
// The kernels for the instructions every CPU of the architecture has.
#define BRAID_VECTOR_BYTES 16
#include "codec/loops.h"

namespace braid {

constinit const CodecKernels kBaselineCodecKernels = all_kernels();

}  // namespace braid
