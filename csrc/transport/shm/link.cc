// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/link.h"

#include "transport/shm/peer_memory.h"

namespace braid::shm {

Status pull(const Link& link, uint64_t address, Bytes into) {
  const Status read = read_memory(link.pid, address, into);
  // Another process may have its number by now.
  if (link.died.load(std::memory_order_acquire) || read.code() == Code::kPeerLost) {
    return {Code::kPeerLost, link.name() + " died", link.peer};
  }
  // Checked after the read: the peer calls hang_up() before it writes to that memory again.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (link.in.control->hung_up.load(std::memory_order_seq_cst) != 0) {
    return {Code::kPeerLost, link.name() + " has closed the group while its memory was read", link.peer};
  }
  if (read.ok()) return {};
  return {read.code(),
          "the memory of " + link.name() + " cannot be read (" + read.message() +
              "); BRAID_SINGLE_COPY=0 does without",
          link.peer};
}

}  // namespace braid::shm
