// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX-512 F, BW, VL and DQ.
#define BRAID_VECTOR_BYTES 64
#include "rules/loops.h"

namespace braid {

constinit const RuleKernels kAvx512RuleKernels = all_rule_kernels();

}  // namespace braid
