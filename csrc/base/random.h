// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/span.h"
#include "base/status.h"

namespace braid {

// Fills `into` with random bytes from the operating system. They are good enough for secrets.
Status fill_random(Bytes into);

// 128 random bits. Memory that holds them is certainly the memory that is meant, not other memory at its address.
// A proof over them was certainly made for this handshake. Travels in messages as it lies in memory.
struct Nonce {
  uint64_t high = 0;
  uint64_t low = 0;

  static Result<Nonce> random();
  static std::optional<Nonce> parse(std::string_view text);
  std::string text() const;  // 32 hexadecimal digits

  bool operator==(const Nonce&) const = default;
};
static_assert(sizeof(Nonce) == 16);

}  // namespace braid
