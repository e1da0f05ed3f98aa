// SPDX-License-Identifier: Apache-2.0
// Reads handles: short texts by which processes of one host find each other's memory. Handles come from other
// processes, so they are read strictly: all other forms are refused.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace braid {

// The pieces of `text` between separators; always at least one.
std::vector<std::string_view> split(std::string_view text, char separator);

// The number that `text` is as a whole, or nothing.
template <class T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace braid
