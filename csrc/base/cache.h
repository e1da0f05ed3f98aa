// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace braid {

// The size of the cache that cores share, from the C library; a typical size if the library does not know it.
size_t shared_cache_bytes();

}  // namespace braid
