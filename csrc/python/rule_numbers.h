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
    std::string names;
    bool is_found = false;
    for (const RuleNumberName& row : rule_number_names()) {
      names += (names.empty() ? "" : ", ") + std::string(row.name);
      if (name != row.name) continue;
      numbers.*row.number = pybind11::cast<double>(value);
      is_found = true;
    }
    if (!is_found) throw pybind11::value_error("there is no number \"" + name + "\"; there are " + names);
  }
  return numbers;
}

}  // namespace braid
