// SPDX-License-Identifier: Apache-2.0
// Tells when processes of this host die, and shows them that this one runs. One per process, handed to whoever has
// peers without a connection that would break.
//
// The pulse is a word that peers can read. The watch's thread advances it, and nothing else that the thread does can
// block: a process whose pulse rests is stopped or frozen, however long its other threads compute or wait.
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

// How often a pulse is advanced.
inline constexpr milliseconds kPulseTime{500};

class DeathWatch {
 public:
  using Id = uint64_t;

  virtual ~DeathWatch() = default;

  // Calls `died` once, from the watch's own thread, when the process ends in whatever way. The callback must be
  // short and must not block: no other death is seen while it runs. An error when there is no such process.
  virtual Result<Id> watch(pid_t pid, std::function<void()> died) = 0;
  // When this returns the callback is not running and never will.
  virtual void forget(Id id) = 0;
  // Advances this process's pulse from the first watch() on. `pulse` must outlive the watch; the last one given counts.
  virtual void beat(std::atomic<uint32_t>& pulse) = 0;
};

// The thread is started by the first watch() and ends with the object.
std::unique_ptr<DeathWatch> make_death_watch();

}  // namespace braid
