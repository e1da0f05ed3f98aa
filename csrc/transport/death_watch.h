// SPDX-License-Identifier: Apache-2.0
// Tells when processes of this host die. One per process, handed to whoever has peers without a connection that
// would break.
//
// Thread safety: all functions may be called from any thread, but not from inside a callback.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"

namespace braid {

class DeathWatch {
 public:
  using Id = uint64_t;

  virtual ~DeathWatch() = default;

  // Calls `died` once, from the watch's own thread, when the process ends in whatever way. The callback must be
  // short and must not block: no other death is seen while it runs. An error when there is no such process.
  virtual Result<Id> watch(pid_t pid, std::function<void()> died) = 0;
  // When this returns the callback is not running and never will.
  virtual void forget(Id id) = 0;
};

// The thread is started by the first watch() and ends with the object.
std::unique_ptr<DeathWatch> make_death_watch();

}  // namespace braid
