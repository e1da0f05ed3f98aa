// SPDX-License-Identifier: Apache-2.0
// Every instruction set against the definition, bit by bit, whatever the sizes, the cuts and the alignment.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/float_environment.h"
#include "rules/reference.h"
#include "support/instruction_sets.h"

namespace braid::testing {
namespace {

class RuleBits : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { ASSERT_TRUE(set_instruction_set(GetParam())); }
  void TearDown() override { set_instruction_set(before_); }

  std::string_view before_ = instruction_set_name();
};

struct Case {
  std::string text;
  RuleNumbers numbers;

  RuleSpec spec() const { return rule_from_text(text).value(); }
};

std::vector<Case> cases() {
  return {
      {"add", {}},
      {"elastic", {.alpha = 0.3}},
      {"sgd", {.rate = 0.1}},
      {"sgd:maximize", {.rate = 0.1, .weight_decay = 0.01}},
      {"sgd:compensates", {.rate = 0.1, .weight_decay = 0.01, .lambda = 0.04}},
      {"sgd:momentum", {.rate = 0.1, .momentum = 0.9, .dampening = 0.2}},
      {"sgd:momentum,nesterov", {.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01}},
      {"sgd:momentum,compensates", {.rate = 0.1, .momentum = 0.9, .lambda = 2}},
      {"adam", {.rate = 0.1}},
      {"adam:amsgrad,maximize", {.rate = 0.1, .weight_decay = 0.01}},
      {"adam", {.rate = 0.1, .beta1 = 0.3, .beta2 = 0.5, .epsilon = 1e-3}},
      {"adamw", {.rate = 0.1, .weight_decay = 0.01}},
      {"adamw:amsgrad", {.rate = 0.1, .weight_decay = 0.01}},
      {"delayed_nesterov:every=3", {.rate = 0.7, .momentum = 0.9, .weight_decay = 0.01}},
      {"delayed_nesterov:every=1", {.rate = 0.7, .momentum = 0.9}},
  };
}

using Draw = Numbers (*)(size_t, uint32_t);

void expect_definition(const Case& rule, size_t n, Draw draw) {
  const RuleSpec spec = rule.spec();
  Shard found(spec, draw(n, 1)), expected = found;
  const Numbers backup = draw(n, 2);
  for (uint32_t step = 1; step <= 7; ++step) {
    const Numbers update = draw(n, 10 + step);
    const float scale = step % 2 == 0 ? 1.0f : 0.3f;
    const Numbers result = found.apply(spec, rule.numbers, step, scale, update, backup);
    const Numbers expected_result = expected.expect(spec, rule.numbers, step, scale, update, backup);
    ASSERT_TRUE(same_bits(found.values, expected.values)) << rule.text << ", " << n << ", step " << step;
    ASSERT_TRUE(same_bits(result, expected_result)) << rule.text << ", " << n << ", step " << step;
    for (size_t i = 0; i < found.state.size(); ++i) {
      ASSERT_TRUE(same_bits(found.state[i], expected.state[i])) << rule.text << ", " << n << ", step " << step;
    }
  }
}

TEST_P(RuleBits, AreThoseOfTheDefinition) {
  for (const Case& rule : cases()) {
    for (const size_t n : {0, 1, 3, 4, 5, 7, 8, 15, 16, 17, 64, 1000}) expect_definition(rule, n, random_numbers);
  }
}

TEST_P(RuleBits, OfNumbersOfAllMagnitudes) {
  for (const Case& rule : cases()) expect_definition(rule, 20011, wild_numbers);
}

// Sums that lie beside the middle of two floats, so close that a double does not show on which side.
TEST_P(RuleBits, OfSumsBesideAMiddle) {
  const RuleSpec spec;
  const RuleNumbers numbers{.rate = 1 + 0x1p-20};
  Numbers start, update;
  for (const float sign : {1.0f, -1.0f}) {
    for (const float nearly : {1 - 0x1p-20f, 1 - 0x1p-20f + 0x1p-24f, 1.0f, 1 - 0x1p-19f}) {
      for (const float whole : {0x1p24f, 0x1p24f + 2, 0x1p24f + 4, 0x1p23f, 0x1p23f + 1, 0x1p25f, 0x1p25f + 4}) {
        start.insert(start.end(), {sign * whole, sign * whole, sign * whole * 0x1p-149f, sign * whole});
        update.insert(update.end(), {nearly, -nearly, nearly * 0x1p-140f, nearly * 0x1p-30f});
      }
    }
  }
  Shard found(spec, start), expected = found;
  found.apply(spec, numbers, 1, 1, update);
  expected.expect(spec, numbers, 1, 1, update);
  EXPECT_TRUE(same_bits(found.values, expected.values));
}

TEST_P(RuleBits, OfWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN(), kMost = std::numeric_limits<float>::max();
  const auto odd_numbers = [](size_t n, uint32_t seed) {
    constexpr float kOdd[] = {1, kInfinity, -kInfinity, kNan, kMost, -kMost, 0, -0.0f};
    Numbers numbers(n);
    for (size_t i = 0; i < n; ++i) numbers[i] = kOdd[(i >> (seed % 3 * 3)) % 8];
    return numbers;
  };
  for (const Case& rule : cases()) expect_definition(rule, 512, odd_numbers);
}

// At addresses that are no multiples of a vector, in parts; the result replaces the update, or is not wanted; what
// lies beside stays.
TEST_P(RuleBits, DoNotDependOnCutsAndAlignment) {
  constexpr size_t kSize = 333;
  for (const Case& rule : cases()) {
    const RuleSpec spec = rule.spec();
    Shard whole(spec, random_numbers(kSize, 1));
    const Numbers update = random_numbers(kSize, 2), backup = random_numbers(kSize, 3);
    Numbers lanes[6];
    for (Numbers& lane : lanes) lane = Numbers(kSize + 2, 99.0f);
    const auto put = [](const Numbers& numbers, Numbers& lane) { std::ranges::copy(numbers, lane.begin() + 1); };
    put(whole.values, lanes[0]);
    put(backup, lanes[2]);
    for (size_t i = 0; i < whole.state.size(); ++i) put(whole.state[i], lanes[3 + i]);
    for (const bool wants_result : {true, false}) {
      const uint64_t step = wants_result ? 1 : 2;
      const Numbers result = whole.apply(spec, rule.numbers, step, 0.5f, update, backup);
      put(update, lanes[1]);
      for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 111}, {111, 111}, {111, kSize}}) {
        const auto at = [begin = begin](Numbers& lane) { return lane.data() + 1 + begin; };
        braid::apply(spec, rule.numbers, step, 0.5f,
                     {.values = at(lanes[0]),
                      .update = at(lanes[1]),
                      .state = {at(lanes[3]), at(lanes[4]), at(lanes[5])},
                      .backup = at(lanes[2]),
                      .result = wants_result ? at(lanes[1]) : nullptr,
                      .count = end - begin});
      }
      const auto inside = [](const Numbers& lane) {
        EXPECT_EQ(lane.front(), 99.0f);
        EXPECT_EQ(lane.back(), 99.0f);
        return Numbers(lane.begin() + 1, lane.end() - 1);
      };
      EXPECT_TRUE(same_bits(inside(lanes[0]), whole.values)) << rule.text;
      EXPECT_TRUE(same_bits(inside(lanes[1]), wants_result ? result : update)) << rule.text;
      EXPECT_TRUE(same_bits(inside(lanes[2]), backup)) << rule.text;
      for (size_t i = 0; i < whole.state.size(); ++i) {
        EXPECT_TRUE(same_bits(inside(lanes[3 + i]), whole.state[i])) << rule.text;
      }
    }
  }
}

#if defined(__x86_64__)
TEST_P(RuleBits, DoNotDependOnFlushing) {
  for (const Case& rule : cases()) {
    const RuleSpec spec = rule.spec();
    const Numbers start = wild_numbers(1000, 1), update = wild_numbers(1000, 2), backup = wild_numbers(1000, 3);
    Shard plain(spec, start), flushed(spec, start);
    plain.apply(spec, rule.numbers, 1, 0.5f, update, backup);
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0xe040u);  // flushes, and rounds toward zero
    flushed.apply(spec, rule.numbers, 1, 0.5f, update, backup);
    _mm_setcsr(before);
    EXPECT_TRUE(same_bits(plain.values, flushed.values)) << rule.text;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(All, RuleBits, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace braid::testing
