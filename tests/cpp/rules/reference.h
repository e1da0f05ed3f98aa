// SPDX-License-Identifier: Apache-2.0
// Each rule by its definition, one float at a time, and shards to apply rules to.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "rules/rule.h"

namespace braid::testing {

using Numbers = std::vector<float>;

inline Numbers random_numbers(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Numbers numbers(n);
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

// Of every magnitude that a float has, zeros and subnormal numbers among them.
inline Numbers wild_numbers(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  Numbers numbers(n);
  for (float& number : numbers) {
    const uint32_t bits = generator();
    std::memcpy(&number, &bits, sizeof number);
    if (!std::isfinite(number)) number = 0;
  }
  return numbers;
}

inline bool same_bits(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_same = std::isnan(a[i]) ? std::isnan(b[i]) : std::memcmp(&a[i], &b[i], sizeof(float)) == 0;
    if (!is_same) return false;
  }
  return true;
}

struct Shard {
  Numbers values;
  std::vector<Numbers> state;

  explicit Shard(const RuleSpec& spec, const Numbers& start)
      : values(start), state(state_vectors(spec), Numbers(start.size())) {}

  // Returns the result.
  Numbers apply(const RuleSpec& spec, const RuleNumbers& numbers, uint64_t step, float scale,
                const Numbers& update, const Numbers& backup = {}) {
    Numbers result(values.size());
    RuleMemory memory{.values = values.data(),
                      .update = update.data(),
                      .backup = spec.compensates ? backup.data() : nullptr,
                      .result = result.data(),
                      .count = values.size()};
    for (size_t i = 0; i < state.size(); ++i) memory.state[i] = state[i].data();
    braid::apply(spec, numbers, step, scale, memory);
    return result;
  }

  // The same by definition.
  Numbers expect(const RuleSpec& spec, const RuleNumbers& numbers, uint64_t step, float scale,
                 const Numbers& update, const Numbers& backup = {}) {
    Numbers result(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      result[i] = expect_one(spec, numbers, step, update[i] * scale, spec.compensates ? backup[i] : 0, i);
    }
    return result;
  }

 private:
  float expect_one(const RuleSpec& spec, const RuleNumbers& of, uint64_t step, float g, float backup, size_t i) {
    float& w = values[i];
    const auto rate = static_cast<float>(of.rate), momentum = static_cast<float>(of.momentum),
               decay = static_cast<float>(of.weight_decay), alpha = static_cast<float>(of.alpha);
    if (spec.kind == RuleKind::kAdd) return w += g;
    if (spec.kind == RuleKind::kElastic) {
      const float elastic = (g - w) * alpha;
      w += elastic;
      return elastic;
    }
    if (spec.maximize) g = -g;
    if (spec.compensates) g = std::fma(g * static_cast<float>(of.lambda) * g, w - backup, g);
    if (spec.kind == RuleKind::kAdamW && decay != 0) w *= static_cast<float>(1 - of.rate * of.weight_decay);
    if (spec.kind != RuleKind::kAdamW && decay != 0) g = std::fma(w, decay, g);
    if (spec.kind == RuleKind::kSgd) {
      if (spec.momentum) {
        float& velocity = state[0][i];
        const auto take = static_cast<float>(1 - of.dampening);
        velocity = step == 1 ? g : std::fma(g, take, velocity * momentum);
        g = spec.nesterov ? std::fma(velocity, momentum, g) : velocity;
      }
      return w = std::fma(g, -rate, w);
    }
    if (spec.kind == RuleKind::kDelayedNesterov) {
      const auto part = static_cast<float>(1.0 / spec.every);
      float direction = g * part;
      state[0][i] += g;
      if (step % static_cast<uint64_t>(spec.every) == 0) {
        state[1][i] = std::fma(state[0][i], part, state[1][i] * momentum);
        state[0][i] = 0;
        direction = std::fma(state[1][i], momentum, direction);
      }
      return w = std::fma(direction, -rate, w);
    }
    const auto first = static_cast<float>(1 - of.beta1);
    float &mean = state[0][i], &square = state[1][i];
    const float difference = g - mean;
    mean = first < 0.5f ? std::fma(difference, first, mean) : std::fma(difference, first - 1, g);
    square = std::fma(g * static_cast<float>(1 - of.beta2), g, square * static_cast<float>(of.beta2));
    float largest = square;
    if (spec.amsgrad) largest = state[2][i] = state[2][i] >= square ? state[2][i] : square;
    const auto steps = static_cast<double>(step);
    const auto correction = static_cast<float>(std::sqrt(1 - std::pow(of.beta2, steps)));
    const auto size = static_cast<float>(of.rate / (1 - std::pow(of.beta1, steps)));
    return w += mean * -size / (std::sqrt(largest) / correction + static_cast<float>(of.epsilon));
  }
};

}  // namespace braid::testing
