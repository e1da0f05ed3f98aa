// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "rules/rule.h"

namespace braid {

// {"rate": 0.1, "momentum": 0.9}; other numbers keep their defaults. ValueError names a number that no rule has.
inline RuleNumbers rule_numbers_of(const pybind11::dict& given) {
  RuleNumbers numbers;
  for (const auto& [key, value] : given) {
    const auto name = pybind11::cast<std::string>(key);
    bool is_known = false;
    for (const RuleNumberName& known : rule_number_names()) {
      if (name != known.name) continue;
      numbers.*known.number = pybind11::cast<double>(value);
      is_known = true;
    }
    if (!is_known) throw pybind11::value_error("no rule has a number called \"" + name + "\"");
  }
  return numbers;
}

}  // namespace braid
