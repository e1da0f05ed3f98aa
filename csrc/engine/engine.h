// SPDX-License-Identifier: Apache-2.0
// All groups of a process share an engine: the doorbell that peers ring, the network thread, the progress thread.
// The caller that makes groups makes it first: adapters keep one per process, tests make one per rank. It lives as
// long as any of its groups.
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
