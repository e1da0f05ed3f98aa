// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64 with AVX2, FMA and F16C.
#define BRAID_VECTOR_BYTES 32
#include "rules/loops.h"

namespace braid {

constinit const RuleKernels kAvx2RuleKernels = all_rule_kernels();

}  // namespace braid
