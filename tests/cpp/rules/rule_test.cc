// SPDX-License-Identifier: Apache-2.0
// What the rules promise about each other, and sums of very many small updates.
#include "rules/rule.h"

#include <gtest/gtest.h>

#include "rules/reference.h"

namespace braid::testing {
namespace {

RuleSpec spec_of(const std::string& text) { return rule_from_text(text).value(); }

// A float16 of 1 would stay 1.
TEST(Rule, TenThousandSmallUpdatesAddUp) {
  Shard added(spec_of("add"), Numbers(3, 1.0f)), descended(spec_of("sgd"), Numbers(3, 1.0f));
  const Numbers small(3, 1e-4f), gradient(3, -1.0f);
  for (uint64_t step = 1; step <= 10000; ++step) {
    added.apply(spec_of("add"), {}, step, 1, small);
    descended.apply(spec_of("sgd"), {.rate = 1e-4}, step, 1, gradient);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(added.values[i], 2.0, 5e-4);
    EXPECT_NEAR(descended.values[i], 2.0, 5e-4);
  }
}

TEST(Rule, DelayedNesterovOfOneUpdateIsNesterov) {
  const RuleSpec delayed = spec_of("delayed_nesterov"), plain = spec_of("sgd:momentum,nesterov");
  const RuleNumbers numbers{.rate = 0.7, .momentum = 0.9, .weight_decay = 0.1};
  Shard a(delayed, random_numbers(100, 1)), b(plain, a.values);
  for (uint32_t step = 1; step <= 20; ++step) {
    const Numbers gradient = random_numbers(100, 1 + step);
    a.apply(delayed, numbers, step, 1, gradient);
    b.apply(plain, numbers, step, 1, gradient);
    ASSERT_TRUE(same_bits(a.values, b.values)) << step;
  }
}

TEST(Rule, CompensationOfNoDelayIsNone) {
  const RuleSpec compensates = spec_of("sgd:compensates"), plain = spec_of("sgd");
  Shard a(compensates, random_numbers(100, 1)), b(plain, a.values);
  const Numbers gradient = random_numbers(100, 2), backup = a.values;
  a.apply(compensates, {.lambda = 2}, 1, 1, gradient, backup);
  b.apply(plain, {}, 1, 1, gradient);
  EXPECT_TRUE(same_bits(a.values, b.values));
}

// The worker and the centre meet in the middle, and their sum stays.
TEST(Rule, ElasticKeepsTheSum) {
  const RuleSpec spec = spec_of("elastic");
  Shard centre(spec, random_numbers(1000, 1));
  Numbers worker = random_numbers(1000, 2);
  const Numbers before_centre = centre.values, before_worker = worker;
  const Numbers elastic = centre.apply(spec, {.alpha = 0.5}, 1, 1, worker);
  for (size_t i = 0; i < worker.size(); ++i) {
    worker[i] -= elastic[i];
    EXPECT_NEAR(worker[i], centre.values[i], 1e-6);
    EXPECT_NEAR(double{worker[i]} + centre.values[i], double{before_worker[i]} + before_centre[i], 1e-6);
  }
  const Numbers still = centre.values;
  for (const float left : centre.apply(spec, {.alpha = 0}, 2, 1, worker)) EXPECT_EQ(left, 0);
  EXPECT_EQ(centre.values, still);
}

TEST(Rule, AStepOfRateZeroChangesOnlyState) {
  for (const std::string text : {"sgd", "sgd:momentum", "adam", "adamw", "delayed_nesterov:every=2"}) {
    const RuleSpec spec = spec_of(text);
    Shard shard(spec, random_numbers(50, 1));
    const Numbers before = shard.values;
    shard.apply(spec, {.rate = 0}, 1, 1, random_numbers(50, 2));
    EXPECT_EQ(shard.values, before) << text;
    if (!shard.state.empty()) {
      EXPECT_NE(shard.state[0], Numbers(50)) << text;
    }
  }
}

}  // namespace
}  // namespace braid::testing
