// SPDX-License-Identifier: Apache-2.0
// One pass of a rule over memory, and the table of all of them. Included once by each kernels_<instruction set>.cc;
// base/vectors.h has the rules for such files.
#pragma once

#include "rules/kernels.h"
#include "rules/lanes.h"

namespace braid {
namespace {

[[gnu::always_inline]] inline Floats load_floats(const float* from) {
  return load_vector<Floats>(reinterpret_cast<const std::byte*>(from));
}
[[gnu::always_inline]] inline void store_floats(float* to, Floats value) {
  store_vector(reinterpret_cast<std::byte*>(to), value);
}

// A vector of elements from `at` on.
template <class Rule>
[[gnu::always_inline]] inline void update_at(const RuleFactors& factors, const RuleMemory& memory, size_t at) {
  Floats value = load_floats(memory.values + at), state[kMostRuleStates];
  for (int i = 0; i < Rule::kStates; ++i) state[i] = load_floats(memory.state[i] + at);
  const Floats update = load_floats(memory.update + at) * factors.scale;
  const Floats backup = factors.compensates ? load_floats(memory.backup + at) : Floats{};
  const Floats result = Rule::at(factors, value, update, backup, state);
  store_floats(memory.values + at, value);
  for (int i = 0; i < Rule::kStates; ++i) store_floats(memory.state[i] + at, state[i]);
  if (memory.result != nullptr) store_floats(memory.result + at, result);
}

// The last elements, fewer than a vector: in memory with room for one.
template <class Rule>
void update_rest(const RuleFactors& factors, const RuleMemory& memory, size_t at) {
  const size_t bytes = (memory.count - at) * sizeof(float);
  float values[kStep] = {}, update[kStep] = {}, state[kMostRuleStates][kStep] = {}, backup[kStep] = {},
        result[kStep] = {};
  __builtin_memcpy(values, memory.values + at, bytes);
  __builtin_memcpy(update, memory.update + at, bytes);
  for (int i = 0; i < Rule::kStates; ++i) __builtin_memcpy(state[i], memory.state[i] + at, bytes);
  if (factors.compensates) __builtin_memcpy(backup, memory.backup + at, bytes);
  update_at<Rule>(factors, {values, update, {state[0], state[1], state[2]}, backup, result, kStep}, 0);
  __builtin_memcpy(memory.values + at, values, bytes);
  for (int i = 0; i < Rule::kStates; ++i) __builtin_memcpy(memory.state[i] + at, state[i], bytes);
  if (memory.result != nullptr) __builtin_memcpy(memory.result + at, result, bytes);
}

template <class Rule>
void update_all(const RuleFactors& given, const RuleMemory& all) {
  const RuleFactors factors = given;  // so that the stores below cannot change it
  const RuleMemory memory = all;
  size_t at = 0;
  for (; at + kStep <= memory.count; at += kStep) update_at<Rule>(factors, memory, at);
  if (at < memory.count) update_rest<Rule>(factors, memory, at);
}

constexpr RuleKernels all_rule_kernels() {
  using namespace rule_formula;
  return {.add = update_all<Add>,
          .elastic = update_all<Elastic>,
          .sgd = update_all<Sgd>,
          .momentum = update_all<Momentum>,
          .adam = update_all<Adam<false>>,
          .adam_maximum = update_all<Adam<true>>,
          .delayed_gather = update_all<DelayedGather>,
          .delayed_momentum = update_all<DelayedMomentum>};
}

}  // namespace
}  // namespace braid
