// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace braid {

// The size of the cache that cores share, from the C library; a typical size if the library does not know it.
size_t shared_cache_bytes();

// The size of the largest cache that the first core uses, from the kernel; shared_cache_bytes() if the kernel does not
// tell. Smaller than shared_cache_bytes() if a processor has several such caches: the C library may add them up.
size_t largest_cache_bytes();

}  // namespace braid
