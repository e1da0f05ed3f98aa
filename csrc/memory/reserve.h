// SPDX-License-Identifier: Apache-2.0
// The system allocates shared memory page by page, when a page is first touched. If the machine then has no memory
// left (strict overcommit, a broken page), the process ends with SIGBUS. A process that reserves the pages before
// gets an error instead.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace braid {

// Allocates the pages of these bytes, if they are not allocated yet. Keeps their content. kSystem if the machine
// has no memory left. On kernels before 5.14 the result is always ok. If the kernel ends processes that reach a
// limit, as it may for a control group, this call ends the process, too, and returns no error.
Status reserve(std::byte* begin, size_t bytes);

// A block of memory whose first part is reserved. The part can grow.
class ReservedPrefix {
 public:
  ReservedPrefix(std::byte* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}

  bool holds(size_t bytes) const { return bytes <= reserved_; }
  // Reserves at least the first `bytes`.
  Status grow_to(size_t bytes);

 private:
  static constexpr size_t kStepBytes = 16 * 1024;

  std::byte* begin_;
  size_t bytes_;
  size_t reserved_ = 0;
};

// For tests: reserve() calls `populate` instead of the system. It returns 0 or an errno value. Null: the system
// again.
void reserve_by(int (*populate)(void* begin, size_t bytes));

}  // namespace braid
