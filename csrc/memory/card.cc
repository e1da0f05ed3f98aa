// SPDX-License-Identifier: Apache-2.0
#include "memory/card.h"

#include <sys/random.h>

#include <cerrno>

namespace braid {
namespace {

constexpr size_t kWordDigits = 16;

std::string hex_digits(uint64_t word) {
  std::string digits(kWordDigits, '0');
  for (size_t i = kWordDigits; i-- > 0; word >>= 4) digits[i] = "0123456789abcdef"[word & 15];
  return digits;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t start = 0;;) {
    const size_t end = text.find(separator, start);
    pieces.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return pieces;
    start = end + 1;
  }
}

Result<Nonce> Nonce::random() {
  Nonce nonce;
  // So few bytes are never cut short once the kernel's pool is up; before that the call is interruptible.
  ssize_t got = 0;
  do {
    got = ::getrandom(&nonce, sizeof nonce, 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof nonce)) return system_error("no random bytes", errno);
  return nonce;
}

std::optional<Nonce> Nonce::parse(std::string_view text) {
  if (text.size() != 2 * kWordDigits) return std::nullopt;
  const auto high = parse_number<uint64_t>(text.substr(0, kWordDigits), 16);
  const auto low = parse_number<uint64_t>(text.substr(kWordDigits), 16);
  if (!high || !low) return std::nullopt;
  return Nonce{*high, *low};
}

std::string Nonce::text() const { return hex_digits(high) + hex_digits(low); }

}  // namespace braid
