// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <charconv>

namespace braid {
namespace {

constexpr size_t kWordDigits = 16;

std::string hex_digits(uint64_t word) {
  std::string digits(kWordDigits, '0');
  for (size_t i = kWordDigits; i-- > 0; word >>= 4) digits[i] = "0123456789abcdef"[word & 15];
  return digits;
}

std::optional<uint64_t> parse_word(std::string_view digits) {
  uint64_t word = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), word, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return word;
}

}  // namespace

Status fill_random(Bytes into) {
  while (!into.empty()) {
    const ssize_t got = ::getrandom(into.data(), into.size(), 0);
    if (got < 0 && errno != EINTR) return system_error("cannot get random bytes", errno);
    if (got > 0) into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

Result<Nonce> Nonce::random() {
  Nonce nonce;
  if (Status bad = fill_random(std::as_writable_bytes(std::span(&nonce, 1))); !bad.ok()) return bad;
  return nonce;
}

std::optional<Nonce> Nonce::parse(std::string_view text) {
  if (text.size() != 2 * kWordDigits) return std::nullopt;
  const auto high = parse_word(text.substr(0, kWordDigits));
  const auto low = parse_word(text.substr(kWordDigits));
  if (!high || !low) return std::nullopt;
  return Nonce{*high, *low};
}

std::string Nonce::text() const { return hex_digits(high) + hex_digits(low); }

}  // namespace braid
