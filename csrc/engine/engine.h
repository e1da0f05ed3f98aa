// SPDX-License-Identifier: Apache-2.0
// All groups of a process share an engine: the doorbell that peers ring, the network thread, the progress thread.
// The caller that makes groups makes it first: adapters keep one per process, tests make one per rank. It lives as
// long as any of its groups.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "options/options.h"

namespace braid {

class Engine {
 public:
  static Result<std::shared_ptr<Engine>> create(const Options& options);
  virtual ~Engine() = default;
};

// What the waits of this process's threads have done.
struct WaitTotals {
  uint64_t turns = 0;   // polls in vain
  uint64_t yields = 0;  // times that a thread gave its core to others, and stayed awake
  uint64_t sleeps = 0;
};
WaitTotals waits_of_process();

}  // namespace braid
