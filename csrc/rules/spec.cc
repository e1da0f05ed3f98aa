// SPDX-License-Identifier: Apache-2.0
// Specs as text, and what a spec and its numbers may be.
#include <cfloat>
#include <charconv>
#include <cmath>
#include <string_view>

#include "rules/rule.h"

namespace braid {
namespace {

constexpr const char* kKindNames[kRuleKindCount] = {"add", "sgd", "adam", "adamw", "elastic", "delayed_nesterov"};

constexpr unsigned bit(RuleKind kind) { return 1u << static_cast<unsigned>(kind); }
constexpr unsigned kAdamKinds = bit(RuleKind::kAdam) | bit(RuleKind::kAdamW);

struct Flag {
  const char* name;
  bool RuleSpec::* is_set;
  unsigned kinds;  // that have it
};
// In the order in which they are printed.
constexpr Flag kFlags[] = {
    {"momentum", &RuleSpec::momentum, bit(RuleKind::kSgd)},
    {"nesterov", &RuleSpec::nesterov, bit(RuleKind::kSgd)},
    {"amsgrad", &RuleSpec::amsgrad, kAdamKinds},
    {"maximize", &RuleSpec::maximize, kAdamKinds | bit(RuleKind::kSgd)},
    {"compensates", &RuleSpec::compensates, bit(RuleKind::kSgd)},
};
constexpr std::string_view kEvery = "every=";

constexpr RuleNumberName kNumbers[] = {
    {"rate", &RuleNumbers::rate},           {"momentum", &RuleNumbers::momentum},
    {"dampening", &RuleNumbers::dampening}, {"weight_decay", &RuleNumbers::weight_decay},
    {"beta1", &RuleNumbers::beta1},         {"beta2", &RuleNumbers::beta2},
    {"epsilon", &RuleNumbers::epsilon},     {"alpha", &RuleNumbers::alpha},
    {"lambda", &RuleNumbers::lambda},
};
static_assert(sizeof(RuleNumbers) == std::size(kNumbers) * sizeof(double));

Status invalid(const std::string& what) { return {Code::kInvalidArgument, what}; }

std::string name_of(RuleKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::string with_comma(const std::string& before) { return before.empty() ? before : before + ", "; }

std::string known_kinds() {
  std::string names;
  for (const char* name : kKindNames) names = with_comma(names) + name;
  return names;
}

std::string options_of(RuleKind kind) {
  std::string names;
  for (const Flag& flag : kFlags) {
    if ((flag.kinds & bit(kind)) != 0) names = with_comma(names) + flag.name;
  }
  if (kind == RuleKind::kDelayedNesterov) names = with_comma(names) + std::string(kEvery) + "N";
  return names.empty() ? name_of(kind) + " has no options" : name_of(kind) + " has " + names;
}

Status check_spec(const RuleSpec& spec) {
  if (static_cast<int>(spec.kind) >= kRuleKindCount) {
    return invalid("there is no rule of number " + std::to_string(static_cast<int>(spec.kind)));
  }
  for (const Flag& flag : kFlags) {
    if (spec.*flag.is_set && (flag.kinds & bit(spec.kind)) == 0) {
      return invalid("there is no option \"" + std::string(flag.name) + "\"; " + options_of(spec.kind));
    }
  }
  if (spec.nesterov && !spec.momentum) return invalid("nesterov needs momentum");
  const int most = spec.kind == RuleKind::kDelayedNesterov ? kMostRuleEvery : 1;
  if (spec.every < 1 || spec.every > most) {
    return invalid("every is " + std::to_string(spec.every) + ", expected 1" +
                   (most == 1 ? "" : " to " + std::to_string(most)));
  }
  return {};
}

// False if the kind has no such option, or its value is no number.
bool take_option(std::string_view option, RuleSpec* spec) {
  for (const Flag& flag : kFlags) {
    if (option == flag.name) {
      spec->*flag.is_set = true;
      return (flag.kinds & bit(spec->kind)) != 0;
    }
  }
  if (spec->kind != RuleKind::kDelayedNesterov || !option.starts_with(kEvery)) return false;
  const char* const end = option.data() + option.size();
  const auto [stopped, error] = std::from_chars(option.data() + kEvery.size(), end, spec->every);
  return error == std::errc() && stopped == end;
}

std::string text_of(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

Status check_range(const RuleNumberName& row, double number) {
  const bool is_beta = row.number == &RuleNumbers::beta1 || row.number == &RuleNumbers::beta2;
  const bool may_be_negative = row.number == &RuleNumbers::dampening;
  if (std::abs(number) <= FLT_MAX && (may_be_negative || number >= 0) && (!is_beta || number < 1)) return {};
  return invalid(std::string(row.name) + " is " + text_of(number) + ", expected " +
                 (is_beta           ? "at least 0 and less than 1"
                  : may_be_negative ? "a finite float32"
                                    : "a finite float32 of at least 0"));
}

Status check_numbers(const RuleSpec& spec, const RuleNumbers& numbers) {
  for (const RuleNumberName& row : kNumbers) {
    if (Status range = check_range(row, numbers.*row.number); !range.ok()) return range;
  }
  const bool adds = spec.kind == RuleKind::kAdd || spec.kind == RuleKind::kElastic;
  const struct {
    const char* name;
    double number;
    bool is_used;
  } uses[] = {{"momentum", numbers.momentum, spec.momentum || spec.kind == RuleKind::kDelayedNesterov},
              {"dampening", numbers.dampening, spec.momentum},
              {"weight_decay", numbers.weight_decay, !adds},
              {"lambda", numbers.lambda, spec.compensates}};
  for (const auto& use : uses) {
    if (use.number != 0 && !use.is_used) {
      return invalid(std::string(use.name) + " is " + text_of(use.number) + ", but the rule does not use it");
    }
  }
  if (spec.nesterov && (numbers.momentum == 0 || numbers.dampening != 0)) {
    return invalid("nesterov needs a momentum above 0 and no dampening");
  }
  return {};
}

}  // namespace

Result<RuleSpec> rule_from_text(const std::string& text) {
  const std::string context = "rule \"" + text + "\"";
  const std::string_view all = text, name = all.substr(0, all.find(':'));
  RuleSpec spec;
  size_t kind = 0;
  while (kind < kRuleKindCount && name != kKindNames[kind]) ++kind;
  if (kind == kRuleKindCount) {
    return invalid("there is none of that name; there are " + known_kinds()).within(context);
  }
  spec.kind = static_cast<RuleKind>(kind);
  for (size_t at = name.size(); at < all.size();) {
    const std::string_view option = all.substr(at + 1, all.find(',', at + 1) - at - 1);
    if (!take_option(option, &spec)) {
      return invalid("there is no option \"" + std::string(option) + "\"; " + options_of(spec.kind))
          .within(context);
    }
    at += 1 + option.size();
  }
  if (Status status = check_spec(spec); !status.ok()) return status.within(context);
  return spec;
}

std::string to_text(const RuleSpec& spec) {
  std::string options;
  for (const Flag& flag : kFlags) {
    if (spec.*flag.is_set) options += (options.empty() ? "" : ",") + std::string(flag.name);
  }
  if (spec.kind == RuleKind::kDelayedNesterov) options = std::string(kEvery) + std::to_string(spec.every);
  return options.empty() ? name_of(spec.kind) : name_of(spec.kind) + ":" + options;
}

std::span<const RuleNumberName> rule_number_names() { return kNumbers; }

Status check(const RuleSpec& spec, const RuleNumbers& numbers) {
  if (Status status = check_spec(spec); !status.ok()) return status;
  const Status status = check_numbers(spec, numbers);
  return status.ok() ? status : status.within("rule \"" + to_text(spec) + "\"");
}

}  // namespace braid
