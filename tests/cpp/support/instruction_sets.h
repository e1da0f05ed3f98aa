// SPDX-License-Identifier: Apache-2.0
// Those this CPU has, narrowest first.
#pragma once

#include <string_view>
#include <vector>

#include "base/instruction_set.h"

namespace braid::testing {

inline std::vector<std::string_view> instruction_sets() {
  const std::string_view before = instruction_set_name();
  std::vector<std::string_view> available;
  for (const std::string_view name : {"baseline", "avx2", "avx512"}) {
    if (set_instruction_set(name)) available.push_back(name);
  }
  set_instruction_set(before);
  return available;
}

}  // namespace braid::testing
