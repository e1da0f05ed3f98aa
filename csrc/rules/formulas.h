// SPDX-License-Identifier: Apache-2.0
// The arithmetic of each rule for one element: a float, or a vector of floats in the compiler's vector types.
//
// It uses only single IEEE operations in a fixed order. What is written as fused() is rounded once. Nothing else
// may be contracted (-ffp-contract=off), and subnormal numbers may not be flushed.
#pragma once

namespace braid {

// What the formulas take besides the elements: the same for all of a call.
struct RuleFactors {
  float scale = 1;        // of the update; negative to maximize
  float lambda = 0;       // of the compensation
  float decay = 0;        // values times this are added to the gradient
  float shrink = 1;       // values are multiplied by this first (AdamW)
  float rate = 0;         // what values change by; negative
  float keep = 0;         // of the old momentum
  float take = 1;         // of the gradient, for the momentum
  float ahead = 0;        // Nesterov: of the momentum, for the gradient
  float first = 0;        // 1 - beta1
  float second_keep = 0;  // beta2
  float second = 0;       // 1 - beta2
  float correction = 1;   // the square root of 1 - beta2^step
  float epsilon = 0;
  float alpha = 0;
  float part = 1;  // 1 / every
  bool compensates = false;
  bool is_first = false;  // the momentum becomes the gradient
};

namespace rule_formula {

#define BRAID_RULE [[gnu::always_inline]] static inline

// fused(a, b, c) = a * b + c, rounded once; root(a); all(x): x in every lane. Whoever has vectors adds a row
// (rules/lanes.h).
template <class Float>
struct Lane;
template <>
struct Lane<float> {
  BRAID_RULE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  BRAID_RULE float root(float value) { return __builtin_sqrtf(value); }
  BRAID_RULE float all(float value) { return value; }
};

template <class Float>
BRAID_RULE Float fused(Float a, float b, Float c) {
  return Lane<Float>::fused(a, Lane<Float>::all(b), c);
}

// The gradient with what SGD and Adam add to it before they use it.
template <class Float>
BRAID_RULE Float decayed(const RuleFactors& factors, Float value, Float gradient) {
  return factors.decay == 0 ? gradient : fused(value, factors.decay, gradient);
}
// `backup` is only used if the rule compensates.
template <class Float>
BRAID_RULE Float compensated(const RuleFactors& factors, Float value, Float gradient, Float backup) {
  if (!factors.compensates) return gradient;
  return Lane<Float>::fused(gradient * factors.lambda * gradient, value - backup, gradient);
}

// Each rule has at(): it changes value and state, and returns the result. `update` is scaled. kStates: how many of
// the state vectors this pass reads and writes.

struct Add {
  static constexpr int kStates = 0;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors&, Float& value, Float update, Float, Float*) {
    return value += update;
  }
};

// What the worker subtracts is what the centre gains, to the bit.
struct Elastic {
  static constexpr int kStates = 0;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float, Float*) {
    const Float elastic = (update - value) * factors.alpha;
    value += elastic;
    return elastic;
  }
};

struct Sgd {
  static constexpr int kStates = 0;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float backup, Float*) {
    const Float gradient = decayed(factors, value, compensated(factors, value, update, backup));
    return value = fused(gradient, factors.rate, value);
  }
};

// state: the momentum.
struct Momentum {
  static constexpr int kStates = 1;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float backup, Float* state) {
    const Float gradient = decayed(factors, value, compensated(factors, value, update, backup));
    state[0] = factors.is_first ? gradient : fused(gradient, factors.take, state[0] * factors.keep);
    const Float direction = factors.ahead == 0 ? state[0] : fused(state[0], factors.ahead, gradient);
    return value = fused(direction, factors.rate, value);
  }
};

// state: the means of gradients and of their squares; with kMaximum also the largest mean of squares so far.
template <bool kMaximum>
struct Adam {
  static constexpr int kStates = kMaximum ? 3 : 2;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float, Float* state) {
    if (factors.shrink != 1) value *= factors.shrink;
    const Float gradient = decayed(factors, value, update);
    // As torch.lerp does: from the end that is nearer.
    const Float difference = gradient - state[0];
    state[0] = factors.first < 0.5f ? fused(difference, factors.first, state[0])
                                    : fused(difference, factors.first - 1.0f, gradient);
    state[1] = Lane<Float>::fused(gradient * factors.second, gradient, state[1] * factors.second_keep);
    Float squares = state[1];
    if constexpr (kMaximum) squares = state[2] = state[2] >= squares ? state[2] : squares;  // a NaN spreads
    const Float divisor = Lane<Float>::root(squares) / factors.correction + factors.epsilon;
    return value += state[0] * factors.rate / divisor;
  }
};

// state: the sum of the gradients since the momentum's last step.
struct DelayedGather {
  static constexpr int kStates = 1;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float, Float* state) {
    const Float gradient = decayed(factors, value, update);
    state[0] += gradient;
    return value = fused(gradient * factors.part, factors.rate, value);
  }
};

// state: that sum, then the momentum.
struct DelayedMomentum {
  static constexpr int kStates = 2;
  template <class Float>
  BRAID_RULE Float at(const RuleFactors& factors, Float& value, Float update, Float, Float* state) {
    const Float gradient = decayed(factors, value, update);
    state[1] = fused(state[0] + gradient, factors.part, state[1] * factors.keep);
    state[0] = Float{};
    return value = fused(fused(state[1], factors.keep, gradient * factors.part), factors.rate, value);
  }
};

#undef BRAID_RULE

}  // namespace rule_formula
}  // namespace braid
