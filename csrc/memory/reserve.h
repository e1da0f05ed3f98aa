// SPDX-License-Identifier: Apache-2.0
// Shared memory is given out page by page, when it is first touched. A machine that then has none left (strict
// overcommit, a broken page) ends the process with SIGBUS. Who asks before gets an error instead.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace braid {

// Takes the pages that hold these bytes, if they are not taken yet; what they hold stays. kSystem when the machine has
// none left. Kernels before 5.14 cannot tell: there it is always ok. A limit that has the kernel end processes when it
// is reached, as a control group's may, shows here, too, as such an end and not as an error.
Status reserve(std::byte* begin, size_t bytes);

// The first part of some memory, reserved as it grows.
class ReservedPrefix {
 public:
  ReservedPrefix(std::byte* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}

  bool holds(size_t bytes) const { return bytes <= reserved_; }
  // At least the first `bytes`.
  Status grow_to(size_t bytes);

 private:
  static constexpr size_t kStepBytes = 16 * 1024;

  std::byte* begin_;
  size_t bytes_;
  size_t reserved_ = 0;
};

// For tests: what reserve() calls in the place of the system's, which returns 0 or an errno value. Null: the system's.
void reserve_by(int (*populate)(void* begin, size_t bytes));

}  // namespace braid
