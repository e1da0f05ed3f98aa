// SPDX-License-Identifier: Apache-2.0
// Reading another process's private memory.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/span.h"
#include "base/status.h"

namespace braid::shm {

// Where only parents may read a process (Yama's ptrace_scope 1), permits all processes of the same user to read
// this one. Does nothing elsewhere.
void permit_readers();

// Fills `into` from `address` of the process. kPeerLost when there is no such process.
Status read_memory(pid_t pid, uint64_t address, Bytes into);

}  // namespace braid::shm
