// SPDX-License-Identifier: Apache-2.0
// Specs as text, and what a spec and its numbers may be.
#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "rules/rule.h"

namespace braid {
namespace {

static_assert(std::is_trivially_copyable_v<RuleSpec> && std::is_trivially_copyable_v<RuleNumbers>);

TEST(RuleText, IsReadAndPrinted) {
  const std::pair<std::string, RuleSpec> rows[] = {
      {"add", {.kind = RuleKind::kAdd}},
      {"sgd", {}},
      {"sgd:momentum", {.momentum = true}},
      {"sgd:momentum,nesterov,maximize", {.momentum = true, .nesterov = true, .maximize = true}},
      {"sgd:compensates", {.compensates = true}},
      {"adam", {.kind = RuleKind::kAdam}},
      {"adamw:amsgrad,maximize", {.kind = RuleKind::kAdamW, .amsgrad = true, .maximize = true}},
      {"elastic", {.kind = RuleKind::kElastic}},
      {"delayed_nesterov:every=4", {.kind = RuleKind::kDelayedNesterov, .every = 4}},
  };
  for (const auto& [text, spec] : rows) {
    const Result<RuleSpec> read = rule_from_text(text);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), spec) << text;
    EXPECT_EQ(to_text(spec), text);
  }
  EXPECT_EQ(rule_from_text("sgd:nesterov,momentum").value(), rule_from_text("sgd:momentum,nesterov").value());
  EXPECT_EQ(to_text(rule_from_text("delayed_nesterov").value()), "delayed_nesterov:every=1");
}

TEST(RuleText, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> rows[] = {
      {"", "rule \"\": there is none of that name; there are add, sgd, adam, adamw, elastic, delayed_nesterov"},
      {"SGD",
       "rule \"SGD\": there is none of that name; there are add, sgd, adam, adamw, elastic, delayed_nesterov"},
      {"sgd:", "rule \"sgd:\": there is no option \"\"; sgd has momentum, nesterov, maximize, compensates"},
      {"sgd:momentum,",
       "rule \"sgd:momentum,\": there is no option \"\"; sgd has momentum, nesterov, maximize, compensates"},
      {"sgd:amsgrad",
       "rule \"sgd:amsgrad\": there is no option \"amsgrad\"; sgd has momentum, nesterov, maximize, compensates"},
      {"adam:momentum", "rule \"adam:momentum\": there is no option \"momentum\"; adam has amsgrad, maximize"},
      {"elastic:every=2", "rule \"elastic:every=2\": there is no option \"every=2\"; elastic has no options"},
      {"sgd:nesterov", "rule \"sgd:nesterov\": nesterov needs momentum"},
      {"delayed_nesterov:every=0", "rule \"delayed_nesterov:every=0\": every is 0, expected 1 to 1048576"},
      {"delayed_nesterov:every=",
       "rule \"delayed_nesterov:every=\": there is no option \"every=\"; delayed_nesterov has every=N"},
      {"delayed_nesterov:every=2x",
       "rule \"delayed_nesterov:every=2x\": there is no option \"every=2x\"; delayed_nesterov has every=N"},
      {"delayed_nesterov:every=99999999999",
       "rule \"delayed_nesterov:every=99999999999\": there is no option \"every=99999999999\"; delayed_nesterov "
       "has every=N"},
  };
  for (const auto& [text, message] : rows) {
    const Result<RuleSpec> read = rule_from_text(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(read.status().message(), message);
  }
}

TEST(RuleState, IsCounted) {
  const std::pair<std::string, int> rows[] = {{"add", 0},
                                              {"elastic", 0},
                                              {"sgd", 0},
                                              {"sgd:compensates", 0},
                                              {"sgd:momentum", 1},
                                              {"adam", 2},
                                              {"adamw", 2},
                                              {"adam:amsgrad", kMostRuleStates},
                                              {"delayed_nesterov:every=2", 2}};
  for (const auto& [text, vectors] : rows) EXPECT_EQ(state_vectors(rule_from_text(text).value()), vectors) << text;
}

void expect_wrong(const std::string& text, const RuleNumbers& numbers, const std::string& message) {
  const Status status = check(rule_from_text(text).value(), numbers);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << message;
  EXPECT_EQ(status.message(), "rule \"" + text + "\": " + message);
}

TEST(RuleCheck, AcceptsWhatTorchAccepts) {
  const std::pair<std::string, RuleNumbers> rows[] = {
      {"sgd", {.rate = 0}},
      {"sgd", {.rate = 1e9, .weight_decay = 3}},
      {"sgd:momentum", {.momentum = 0}},
      {"sgd:momentum", {.momentum = 1.5, .dampening = -0.5}},
      {"sgd:compensates", {.lambda = 0.04}},
      {"sgd:momentum,nesterov", {.momentum = 0.9}},
      {"adamw:amsgrad", {.weight_decay = 0.1, .beta1 = 0, .beta2 = 0, .epsilon = 0}},
      {"delayed_nesterov:every=4", {.rate = 0.7, .momentum = 0.9, .weight_decay = 0.1}},
      {"elastic", {.alpha = 0}},
      {"add", {}},
  };
  for (const auto& [text, numbers] : rows) {
    const Status status = check(rule_from_text(text).value(), numbers);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(RuleCheck, RefusesNumbersOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  expect_wrong("sgd", {.rate = -0.1}, "rate is -0.1, expected a finite float32 of at least 0");
  expect_wrong("sgd", {.rate = nan}, "rate is nan, expected a finite float32 of at least 0");
  expect_wrong("sgd", {.rate = 1e39}, "rate is 1e+39, expected a finite float32 of at least 0");
  expect_wrong("sgd:momentum", {.momentum = -1}, "momentum is -1, expected a finite float32 of at least 0");
  expect_wrong("sgd:momentum", {.dampening = infinity}, "dampening is inf, expected a finite float32");
  expect_wrong("adam", {.weight_decay = -1}, "weight_decay is -1, expected a finite float32 of at least 0");
  expect_wrong("adam", {.beta1 = 1}, "beta1 is 1, expected at least 0 and less than 1");
  expect_wrong("adam", {.beta2 = -0.1}, "beta2 is -0.1, expected at least 0 and less than 1");
  expect_wrong("adam", {.epsilon = -1}, "epsilon is -1, expected a finite float32 of at least 0");
  expect_wrong("elastic", {.alpha = -1}, "alpha is -1, expected a finite float32 of at least 0");
  expect_wrong("sgd:compensates", {.lambda = -1}, "lambda is -1, expected a finite float32 of at least 0");
  // In whatever rule: the numbers travel together.
  for (const RuleNumberName& row : rule_number_names()) {
    RuleNumbers numbers;
    numbers.*row.number = nan;
    EXPECT_NE(check(rule_from_text("add").value(), numbers).message().find(row.name), std::string::npos);
  }
}

TEST(RuleCheck, RefusesNumbersWithoutUse) {
  expect_wrong("sgd", {.momentum = 0.9}, "momentum is 0.9, but the rule does not use it");
  expect_wrong("sgd", {.dampening = 0.1}, "dampening is 0.1, but the rule does not use it");
  expect_wrong("sgd", {.lambda = 0.1}, "lambda is 0.1, but the rule does not use it");
  expect_wrong("elastic", {.weight_decay = 0.1}, "weight_decay is 0.1, but the rule does not use it");
  expect_wrong("sgd:momentum,nesterov", {}, "nesterov needs a momentum above 0 and no dampening");
  expect_wrong("sgd:momentum,nesterov", {.momentum = 0.9, .dampening = 0.1},
               "nesterov needs a momentum above 0 and no dampening");
}

TEST(RuleCheck, RefusesSpecsThatNoTextMakes) {
  const std::pair<RuleSpec, std::string> rows[] = {
      {{.kind = static_cast<RuleKind>(kRuleKindCount)}, "there is no rule of number 6"},
      {{.kind = RuleKind::kAdd, .momentum = true}, "there is no option \"momentum\"; add has no options"},
      {{.kind = RuleKind::kAdam, .compensates = true},
       "there is no option \"compensates\"; adam has amsgrad, maximize"},
      {{.nesterov = true}, "nesterov needs momentum"},
      {{.every = 2}, "every is 2, expected 1"},
      {{.kind = RuleKind::kDelayedNesterov, .every = -1}, "every is -1, expected 1 to 1048576"},
  };
  for (const auto& [spec, message] : rows) EXPECT_EQ(check(spec, {}).message(), message);
}

}  // namespace
}  // namespace braid
