// SPDX-License-Identifier: Apache-2.0
// The table of kernels that each kernels_<instruction set>.cc gives to rule.cc.
#pragma once

#include "rules/formulas.h"
#include "rules/rule.h"

namespace braid {

using RuleKernel = void (*)(const RuleFactors& factors, const RuleMemory& memory);

// One for each pass of rules/formulas.h.
struct RuleKernels {
  RuleKernel add;
  RuleKernel elastic;
  RuleKernel sgd;
  RuleKernel momentum;
  RuleKernel adam;
  RuleKernel adam_maximum;
  RuleKernel delayed_gather;
  RuleKernel delayed_momentum;
};

extern const RuleKernels kBaselineRuleKernels;
extern const RuleKernels kAvx2RuleKernels;    // x86-64 only
extern const RuleKernels kAvx512RuleKernels;  // x86-64 only

}  // namespace braid
