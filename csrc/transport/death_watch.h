// SPDX-License-Identifier: Apache-2.0
// Tells when processes of this host die, and shows those processes that this one runs. One per process. Wires
// without a connection that would break use it.
//
// The pulse is a word that peers can read. The watch's thread advances it, and does nothing that can block. So a
// process whose pulse rests is stopped or frozen; other threads that compute or wait do not stop the pulse.
//
// Thread safety: all functions may be called from any thread, but not from inside a callback.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

// The time between two advances of a pulse.
inline constexpr milliseconds kPulseTime{500};

class DeathWatch {
 public:
  using Id = uint64_t;

  virtual ~DeathWatch() = default;

  // Calls `died` once, from the watch's own thread, when the process ends for any reason. The callback must be
  // short and must not block: no other death is seen while it runs. Returns an error if there is no such process.
  virtual Result<Id> watch(pid_t pid, std::function<void()> died) = 0;
  // When this returns, the callback is not running and will not run again.
  virtual void forget(Id id) = 0;
  // Advances this process's pulse from the first watch() on. `pulse` must outlive the watch. A later call replaces
  // the pulse.
  virtual void beat(std::atomic<uint32_t>& pulse) = 0;
};

// The thread is started by the first watch() and ends with the object.
std::unique_ptr<DeathWatch> make_death_watch();

}  // namespace braid
