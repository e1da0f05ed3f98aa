// SPDX-License-Identifier: Apache-2.0
// How much is believed of what comes from outside: from another rank, a store or a file. A size is compared with its
// limit before anything of that size is made; what is beyond is refused with an error that says both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid {

// What one rank leaves in a store for the others: endpoints, tokens, places. An endpoint has some hundred bytes.
inline constexpr size_t kMostStoreValueBytes = size_t{1} << 20;
// A text that the first rank tells the others: a topology, say, with a line for each host.
inline constexpr size_t kMostToldBytes = size_t{16} << 20;
// An all_reduce that ranks order from an aggregator, and the time that they give it.
inline constexpr uint64_t kMostOrderedBytes = uint64_t{1} << 40;
inline constexpr int64_t kMostOrderedTime_ms = int64_t{365} * 24 * 3600 * 1000;
// Names that aggregators leave for themselves; theirs have 24.
inline constexpr size_t kMostTicketBytes = 64;
// The file of remembered links: about 100,000 hosts.
inline constexpr size_t kMostRememberedBytes = size_t{16} << 20;

// "<what> has <bytes> bytes, more than the <most> allowed"
inline std::string too_large(const std::string& what, uint64_t bytes, uint64_t most) {
  return what + " has " + std::to_string(bytes) + " bytes, more than the " + std::to_string(most) + " allowed";
}

}  // namespace braid
