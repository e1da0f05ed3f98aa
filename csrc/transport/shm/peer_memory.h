// SPDX-License-Identifier: Apache-2.0
// Reading another process's private memory, and permitting others to read this one's.
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

// Where only parents may read a process (Yama's ptrace_scope 1), a process can name one other that may read it, with
// all descendants of that, or permit all processes of its user. So one peer is named; for several peers all processes
// are permitted. What nobody needs any more is taken back. A permission that the program itself gave cannot be seen,
// and is replaced.
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
  std::map<pid_t, int> readers_;  // and how many need each
  long permitted_ = kNobody;
  pid_t pid_ = -1;  // of the process that all this is of; a forked child has permitted nothing
};

// The readers that one group needs, from set() to its end.
class Readers {
 public:
  Readers() = default;
  ~Readers() { set({}); }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // In the place of those set before.
  void set(std::vector<pid_t> pids);

 private:
  std::vector<pid_t> pids_;
};

// Fills `into` from `address` of the process. kPeerLost when there is no such process.
Status read_memory(pid_t pid, uint64_t address, Bytes into);

}  // namespace braid::shm
