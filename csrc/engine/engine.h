// SPDX-License-Identifier: Apache-2.0
// What all groups of a process share: the doorbell that peers ring, the network thread, the progress thread. Made
// by whoever makes groups (the adapters keep one per process; tests make one per rank), alive while any group is.
#pragma once

#include <memory>

#include "base/status.h"
#include "options/options.h"

namespace braid {

class Engine {
 public:
  static Result<std::shared_ptr<Engine>> create(const Options& options);
  virtual ~Engine() = default;
};

}  // namespace braid
