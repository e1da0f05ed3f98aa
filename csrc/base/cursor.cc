// SPDX-License-Identifier: Apache-2.0
#include "base/cursor.h"

#include <charconv>
#include <cmath>

namespace braid {

void Cursor::skip_blanks() {
  size_t start = rest_.find_first_not_of(" \t\r");
  rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
}

bool Cursor::at_end() {
  skip_blanks();
  return rest_.empty();
}

bool Cursor::fail(const std::string& what) {
  if (failed()) return false;
  std::string found(rest_.substr(0, rest_.find_first_of(" \t\r")).substr(0, 20));
  expected_ = "expected " + what + (found.empty() ? ", found the end of the line" : ", found \"" + found + "\"");
  return false;
}

bool Cursor::try_take(std::string_view token) {
  skip_blanks();
  if (!rest_.starts_with(token)) return false;
  rest_.remove_prefix(token.size());
  return true;
}

bool Cursor::take(std::string_view token) { return try_take(token) || fail("\"" + std::string(token) + "\""); }

std::string_view Cursor::word() {
  skip_blanks();
  return rest_.substr(0, rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"));
}

bool Cursor::whole_number(uint64_t* value, const std::string& what, uint64_t limit) {
  auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
  if (error == std::errc::invalid_argument) return fail(what);
  if (error != std::errc() || *value > limit) return fail(what + " of at most " + std::to_string(limit));
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return true;
}

bool Cursor::amount(double* value, const std::string& what) {
  auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
  if (error != std::errc() || !std::isfinite(*value) || std::signbit(*value)) return fail(what);
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return true;
}

}  // namespace braid
