// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "options/stated_links.h"

namespace braid {

// Stated links as python/braid/_links.py has them: problem, digest, alpha_s, beta_s_per_byte, up_s_per_byte,
// down_s_per_byte.
using StatedNumbers = std::tuple<std::string, std::string, double, double, double, double>;

inline std::optional<StatedLinks> stated_links_of(const std::optional<StatedNumbers>& numbers) {
  if (!numbers) return std::nullopt;
  const auto& [problem, digest, alpha_s, beta_s_per_byte, up_s_per_byte, down_s_per_byte] = *numbers;
  return StatedLinks{problem, digest, {alpha_s, beta_s_per_byte}, {up_s_per_byte, down_s_per_byte}};
}

}  // namespace braid
