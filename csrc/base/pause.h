// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace braid {

// For loops that poll: lets the other hardware thread of the core run.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace braid
