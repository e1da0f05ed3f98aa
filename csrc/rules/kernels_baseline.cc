// SPDX-License-Identifier: Apache-2.0
// The kernels for the instructions every CPU of the architecture has.
#define BRAID_VECTOR_BYTES 16
#include "rules/loops.h"

namespace braid {

constinit const RuleKernels kBaselineRuleKernels = all_rule_kernels();

}  // namespace braid
