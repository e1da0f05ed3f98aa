// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <charconv>
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
    return Status(Code::kInvalidArgument, std::string(name) + "=" + *text + ": expected a whole number from " +
                                              std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

}  // namespace braid
