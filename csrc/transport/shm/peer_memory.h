// SPDX-License-Identifier: Apache-2.0
// Reads another process's private memory, and permits other processes to read this one's memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/span.h"
#include "base/status.h"

namespace braid::shm {

// With Yama's ptrace_scope 1 only parents may read a process. But a process can name one other process, which may
// then read it with all its descendants, or permit all processes of its user. So a single peer is named; for
// several peers all processes are permitted. A permission that nobody needs any more is taken back. braid cannot
// see a permission that the program itself gave, and replaces it.
//
// Thread safety: all functions from any thread.
class ReadPermits {
 public:
  static constexpr long kNobody = 0, kEverybody = -1;
  // `permit` tells the system who may read: a process, or one of the above.
  explicit ReadPermits(std::function<void(long)> permit) : permit_(std::move(permit)) {}

  void change(const std::vector<pid_t>& gone, const std::vector<pid_t>& come);

 private:
  std::mutex mutex_;
  const std::function<void(long)> permit_;
  std::map<pid_t, int> readers_;  // per process: how many groups need it as a reader
  long permitted_ = kNobody;
  pid_t pid_ = -1;  // the process of this state; a forked child has permitted nothing
};

// The readers that one group needs, from set() to the end of this object.
class Readers {
 public:
  Readers() = default;
  ~Readers() { set({}); }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Replaces the readers that were set before.
  void set(std::vector<pid_t> pids);

 private:
  std::vector<pid_t> pids_;
};

// Fills `into` from `address` of the process. kPeerLost if there is no such process.
Status read_memory(pid_t pid, uint64_t address, Bytes into);

}  // namespace braid::shm
