// SPDX-License-Identifier: Apache-2.0
#include "rules/rule.h"

#include <cmath>

#include "base/float_environment.h"
#include "base/instruction_set.h"
#include "rules/kernels.h"

namespace braid {
namespace {

// Indexed by InstructionSet.
constexpr const RuleKernels* kRuleKernels[kInstructionSetCount] = {
    &kBaselineRuleKernels,
#if defined(__x86_64__)
    &kAvx2RuleKernels,
    &kAvx512RuleKernels,
#endif
};

bool steps_momentum(const RuleSpec& spec, uint64_t step) { return step % static_cast<uint64_t>(spec.every) == 0; }

RuleKernel kernel_of(const RuleKernels& kernels, const RuleSpec& spec, uint64_t step) {
  switch (spec.kind) {
    case RuleKind::kAdd: return kernels.add;
    case RuleKind::kElastic: return kernels.elastic;
    case RuleKind::kSgd: return spec.momentum ? kernels.momentum : kernels.sgd;
    case RuleKind::kAdam:
    case RuleKind::kAdamW: return spec.amsgrad ? kernels.adam_maximum : kernels.adam;
    case RuleKind::kDelayedNesterov:
      return steps_momentum(spec, step) ? kernels.delayed_momentum : kernels.delayed_gather;
  }
  return kernels.add;
}

RuleFactors factors_of(const RuleSpec& spec, const RuleNumbers& numbers, uint64_t step, float scale) {
  const auto rounded = [](double exact) { return static_cast<float>(exact); };
  RuleFactors factors{.scale = spec.maximize ? -scale : scale,
                      .lambda = rounded(numbers.lambda),
                      .rate = rounded(-numbers.rate),
                      .keep = rounded(numbers.momentum),
                      .take = rounded(1 - numbers.dampening),
                      .ahead = spec.nesterov ? rounded(numbers.momentum) : 0.0f,
                      .alpha = rounded(numbers.alpha),
                      .part = rounded(1.0 / spec.every),
                      .compensates = spec.compensates,
                      .is_first = step == 1};
  if (spec.kind == RuleKind::kAdamW) {
    factors.shrink = rounded(1 - numbers.rate * numbers.weight_decay);
  } else {
    factors.decay = rounded(numbers.weight_decay);
  }
  if (spec.kind == RuleKind::kAdam || spec.kind == RuleKind::kAdamW) {
    const auto steps = static_cast<double>(step);
    factors.first = rounded(1 - numbers.beta1);
    factors.second_keep = rounded(numbers.beta2);
    factors.second = rounded(1 - numbers.beta2);
    factors.correction = rounded(std::sqrt(1 - std::pow(numbers.beta2, steps)));
    factors.epsilon = rounded(numbers.epsilon);
    factors.rate = rounded(-(numbers.rate / (1 - std::pow(numbers.beta1, steps))));
  }
  return factors;
}

}  // namespace

int state_vectors(const RuleSpec& spec) {
  switch (spec.kind) {
    case RuleKind::kAdd:
    case RuleKind::kElastic: return 0;
    case RuleKind::kSgd: return spec.momentum ? 1 : 0;
    case RuleKind::kAdam:
    case RuleKind::kAdamW: return spec.amsgrad ? 3 : 2;
    case RuleKind::kDelayedNesterov: return 2;
  }
  return 0;
}

void apply(const RuleSpec& spec, const RuleNumbers& numbers, uint64_t step, float scale,
           const RuleMemory& memory) {
  const PlainFloats plain;
  const RuleKernels& kernels = *kRuleKernels[static_cast<int>(instruction_set())];
  kernel_of(kernels, spec, step)(factors_of(spec, numbers, step, scale), memory);
}

}  // namespace braid
