// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace braid {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<int64_t> env_integer(const char* name, int64_t fallback, int64_t low, int64_t high) {
  const auto text = env_string(name);
  if (!text) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < low || value > high) {
    const std::string range = std::to_string(low) + (high == low + 1 ? " or " : " to ") + std::to_string(high);
    return Status(Code::kInvalidArgument, std::string(name) + "=" + *text + ": expected " +
                                              (high == low + 1 ? "" : "a whole number from ") + range);
  }
  return value;
}

Result<milliseconds> env_seconds(const char* name, milliseconds fallback, milliseconds low, milliseconds high) {
  const auto text = env_string(name);
  if (!text) return fallback;
  double seconds = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  const bool is_number = error == std::errc() && end == text->data() + text->size() && std::isfinite(seconds);
  const double ms = seconds * 1000;
  const bool fits = ms >= static_cast<double>(low.count()) && ms <= static_cast<double>(high.count());
  if (is_number && (seconds == 0 || fits)) return milliseconds(std::llround(ms));
  const auto in_seconds = [](milliseconds limit) {
    std::string number = std::to_string(static_cast<double>(limit.count()) / 1000);
    number.erase(number.find_last_not_of('0') + 1);
    return number.ends_with('.') ? number.substr(0, number.size() - 1) : number;
  };
  return Status(Code::kInvalidArgument, std::string(name) + "=" + *text + ": expected seconds from " +
                                            in_seconds(low) + " to " + in_seconds(high) + ", or 0 for never");
}

}  // namespace braid
