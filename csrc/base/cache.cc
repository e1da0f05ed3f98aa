// SPDX-License-Identifier: Apache-2.0
#include "base/cache.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace braid {
namespace {

constexpr size_t kOrdinaryBytes = size_t{32} << 20;

size_t ask() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<size_t>(bytes);
#endif
  return kOrdinaryBytes;
}

// The kernel writes "32768K".
size_t ask_kernel() {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    size_t kibibytes = 0;
    char unit = 0;
    if (file >> kibibytes >> unit && unit == 'K') largest = std::max(largest, kibibytes << 10);
  }
  return largest;
}

}  // namespace

size_t shared_cache_bytes() {
  static const size_t bytes = ask();
  return bytes;
}

size_t largest_cache_bytes() {
  static const size_t bytes = ask_kernel();
  return bytes > 0 ? bytes : shared_cache_bytes();
}

}  // namespace braid
