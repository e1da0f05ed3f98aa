// SPDX-License-Identifier: Apache-2.0
// Limits for sizes that come from outside: from another rank, a store or a file. A size is compared with its limit
// before memory of that size is allocated. A larger size is refused, with an error that says both numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid {

// A value that one rank leaves in a store for the others: endpoints, tokens, places. An endpoint has some hundred
// bytes.
inline constexpr size_t kMostStoreValueBytes = size_t{1} << 20;
// A text that the first rank tells the others: for example a topology, with a line for each host.
inline constexpr size_t kMostToldBytes = size_t{16} << 20;
// An all_reduce that ranks order from an aggregator, and the time that they allow for it.
inline constexpr uint64_t kMostOrderedBytes = uint64_t{1} << 40;
inline constexpr int64_t kMostOrderedTime_ms = int64_t{365} * 24 * 3600 * 1000;
// A name that an aggregator leaves for itself; braid's own names have 24 bytes.
inline constexpr size_t kMostTicketBytes = 64;
// The file of remembered links: about 100,000 hosts.
inline constexpr size_t kMostRememberedBytes = size_t{16} << 20;

// "<what> has <bytes> bytes, more than the <most> allowed"
inline std::string too_large(const std::string& what, uint64_t bytes, uint64_t most) {
  return what + " has " + std::to_string(bytes) + " bytes, more than the " + std::to_string(most) + " allowed";
}

}  // namespace braid
