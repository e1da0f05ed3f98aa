// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>

#include <cstddef>

namespace braid::testing {

inline size_t open_descriptors() {
  size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

}  // namespace braid::testing
