// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104). Connections prove their membership with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/span.h"

namespace braid {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void update(ConstBytes bytes);
  // Called once, after the last update().
  Digest finish();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  uint64_t total_bytes_ = 0;
};

Digest sha256(ConstBytes bytes);
Digest hmac_sha256(ConstBytes key, ConstBytes message);

// Two lower-case digits per byte.
std::string hex(ConstBytes bytes);

// Takes the same time for every position of the first difference, so that an attacker learns nothing from the
// time.
bool equal_in_constant_time(ConstBytes a, ConstBytes b);

inline ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace braid
