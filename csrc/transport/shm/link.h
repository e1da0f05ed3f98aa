// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>

#include "base/span.h"
#include "base/status.h"
#include "transport/channel.h"
#include "transport/doorbell.h"
#include "transport/shm/layout.h"

namespace braid::shm {

// One peer as its channel and its board see it. Owned by the group, which outlives their use.
struct Link {
  Node peer = -1;
  pid_t pid = -1;
  Ring in;                              // in this rank's segment
  Ring out;                             // in the peer's segment
  const GroupHeader* header = nullptr;  // of the peer's segment
  DoorbellWord* my_bell = nullptr;
  DoorbellWord* peer_bell = nullptr;
  const std::atomic<uint32_t>* peer_pulse = nullptr;  // null if the peer is in this process
  std::atomic<bool> died{false};                      // set by the death watch, which then rings my_bell
  ChannelTraits traits;

  std::string name() const { return "rank " + std::to_string(peer) + " (pid " + std::to_string(pid) + ")"; }
};

// Copies memory of the peer. The peer does not change it until this rank reports that it has the copy. kPeerLost
// if the peer died or hung up. A peer that fails hangs up before it releases its memory, so after that the copy
// may be wrong.
Status pull(const Link& link, uint64_t address, Bytes into);

}  // namespace braid::shm
