// SPDX-License-Identifier: Apache-2.0
#include "base/cache.h"

#include <unistd.h>

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

}  // namespace

size_t shared_cache_bytes() {
  static const size_t bytes = ask();
  return bytes;
}

}  // namespace braid
