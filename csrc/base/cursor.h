// SPDX-License-Identifier: Apache-2.0
// Reads tokens from one line of text. Keeps the first failure: the token that was expected, and the text found
// instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

class Cursor {
 public:
  explicit Cursor(std::string_view line) : rest_(line) {}

  bool failed() const { return !expected_.empty(); }
  const std::string& expected() const { return expected_; }  // "expected a number, found "x""
  bool at_end();                                             // nothing but blanks is left

  // All functions below return false on failure. Only the first failure is recorded.
  bool fail(const std::string& what);
  // Skips blanks first; the token itself is taken literally.
  bool try_take(std::string_view token);
  bool take(std::string_view token);
  // Does not skip blanks.
  bool next_is(std::string_view token) const { return rest_.starts_with(token); }

  // The word of a-z, 0-9 and _ that comes next, after blanks. Does not take it: call drop() for that.
  std::string_view word();
  void drop(std::string_view word) { rest_.remove_prefix(word.size()); }

  // A whole number without a sign and without blanks before it.
  template <class T>
  bool number(T* value, const std::string& what, uint64_t limit) {
    uint64_t parsed = 0;
    if (!whole_number(&parsed, what, limit)) return false;
    *value = static_cast<T>(parsed);
    return true;
  }
  // A finite number of zero or more.
  bool amount(double* value, const std::string& what);

 private:
  bool whole_number(uint64_t* value, const std::string& what, uint64_t limit);
  void skip_blanks();

  std::string_view rest_;
  std::string expected_;
};

}  // namespace braid
