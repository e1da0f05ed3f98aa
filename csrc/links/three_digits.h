// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>

namespace braid {

// Further digits of a measurement would only be noise, and people read these numbers.
inline double with_three_digits(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 2);
  std::from_chars(text, end, value);
  return value;
}

}  // namespace braid
