// SPDX-License-Identifier: Apache-2.0
// Update rules: how whoever holds parameters changes them when an update arrives. Each rule is one pass over the
// memory, on the calling thread.
//
// SGD, Adam and AdamW do what torch.optim does, in its order of operations. All arithmetic on elements is in float32;
// factors that are the same for all elements are computed in double and rounded once, as torch does. A product that
// is added is rounded once (fused multiply-add), as torch 2.13 does with AVX2. So SGD, with momentum or
// without, has the bits of torch's loop and of its foreach form; torch's fused form differs in the last few elements
// of a tensor. Adam's means have torch's bits, too. Its values may differ in the last bits, because torch does not
// round the square root correctly.
//
// All instruction sets (base/instruction_set.h) give the same bits, and so does every cut of the vectors into
// parts. Only the payload of a NaN may differ. How the calling thread treats subnormal floats does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace braid {

enum class RuleKind : uint8_t {
  kAdd,              // values += update
  kSgd,              // with momentum (Polyak or Nesterov) if the spec says so
  kAdam,             // weight decay is added to the gradient
  kAdamW,            // weight decay shrinks the values
  kElastic,          // e = alpha (update - values); values += e (Zhang, Choromanska, LeCun 2015)
  kDelayedNesterov,  // gradient / every at once, their momentum every `every` updates (Liu et al. 2024, c = 0)
};
inline constexpr int kRuleKindCount = 6;
inline constexpr int kMostRuleStates = 3;
inline constexpr int kMostRuleEvery = 1 << 20;

// Fixed for the life of a shard.
struct RuleSpec {
  RuleKind kind = RuleKind::kSgd;
  bool momentum = false;  // SGD: keeps a momentum vector
  bool nesterov = false;  // SGD with momentum
  bool amsgrad = false;   // Adam, AdamW
  bool maximize = false;  // SGD, Adam, AdamW: the update is negated
  bool compensates =
      false;      // SGD: g + lambda g g (values - backup) in place of the gradient g (Zheng et al. 2017)
  int every = 1;  // delayed Nesterov: updates per step of the momentum

  bool operator==(const RuleSpec&) const = default;
};

// "add", "sgd", "sgd:momentum,nesterov", "sgd:compensates", "adam", "adamw:amsgrad,maximize", "elastic",
// "delayed_nesterov:every=4". kInvalidArgument says what there is.
Result<RuleSpec> rule_from_text(const std::string& text);
// The same for equal specs. REQUIRES: a spec that check() accepts.
std::string to_text(const RuleSpec& spec);

// How many vectors of float32 a shard keeps beside its values, with one number per element.
int state_vectors(const RuleSpec& spec);

// Travel with every push, so that schedulers work. In double, as torch has them: 1 - beta2 of a float 0.999 would be
// wrong by 1e-5.
struct RuleNumbers {
  double rate = 0.01;
  double momentum = 0;  // SGD with momentum, delayed Nesterov
  double dampening = 0;
  double weight_decay = 0;  // SGD, Adam, AdamW, delayed Nesterov
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double alpha = 0.1;  // elastic
  double lambda = 0;   // of `compensates`

  bool operator==(const RuleNumbers&) const = default;
};

struct RuleNumberName {
  const char* name;
  double RuleNumbers::* number;
};
// All numbers, in the order of their declaration.
std::span<const RuleNumberName> rule_number_names();

// kInvalidArgument if the spec combines what does not go together; if a number is not in the range that torch's
// optimizers demand, or not finite as a float; or if momentum, dampening, weight decay or lambda is not 0, but the
// rule does not use it.
Status check(const RuleSpec& spec, const RuleNumbers& numbers);

// Nothing overlaps, except that `result` may be the same memory as `update`. A null pointer is allowed where it says
// so, and everywhere if count is 0.
struct RuleMemory {
  float* values = nullptr;  // the master values: read and written
  // A gradient; for kAdd a difference, for kElastic the worker's own values.
  const float* update = nullptr;
  // The first state_vectors() of them are read and written. Zeros before the first update.
  float* state[kMostRuleStates] = {};
  // If the spec compensates: the values that the worker had when it computed its gradient.
  const float* backup = nullptr;
  // If not null: gets the new values; for kElastic gets e, which the worker subtracts from its own values.
  float* result = nullptr;
  size_t count = 0;
};

// `step`: 1 for the shard's first update, then 2, and so on. `scale`: the update is multiplied by it first.
// REQUIRES: check(spec, numbers) is ok; step >= 1.
void apply(const RuleSpec& spec, const RuleNumbers& numbers, uint64_t step, float scale, const RuleMemory& memory);

}  // namespace braid
