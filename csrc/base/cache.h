// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace braid {

// Of the cache that cores share, as the C library knows it; an ordinary size where it does not.
size_t shared_cache_bytes();

}  // namespace braid
