// SPDX-License-Identifier: Apache-2.0
// The other processes of the job on this host, and the cores that they run on.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/doorbell.h"

namespace braid {

// Thread safety: any thread may call anything.
class Neighbours {
 public:
  // The doorbell of a process. It must outlive its stay here, which remove() ends.
  void add(const DoorbellWord& bell);
  void remove(const DoorbellWord& bell);
  // True if one of them was on this core (core_number()) when it last waited. False while another thread is in here.
  bool any_on(uint32_t core) const;

 private:
  const pid_t pid_ = ::getpid();  // in a forked child the lock may be held by a thread that is not there
  mutable std::mutex mutex_;
  std::vector<const DoorbellWord*> bells_;  // of several groups with one process: several of it
};

}  // namespace braid
