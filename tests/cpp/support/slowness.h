// SPDX-License-Identifier: Apache-2.0
// Limits of time in tests follow the machine. tests/slowness.py measures how much slower it is than a quiet one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace braid::testing {

// At least 1; 1 where nobody has measured it.
inline double slowness() {
  const char* measured = std::getenv("BRAID_TEST_SLOWNESS");
  return std::max(1.0, measured ? std::atof(measured) : 1.0);
}

// `quiet`: the limit on a quiet machine.
inline std::chrono::milliseconds limit(std::chrono::milliseconds quiet) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(quiet * slowness());
}

}  // namespace braid::testing
