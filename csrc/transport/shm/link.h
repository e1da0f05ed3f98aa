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
  Ring in;                              // in my segment
  Ring out;                             // in the peer's
  const GroupHeader* header = nullptr;  // the peer's
  DoorbellWord* my_bell = nullptr;
  DoorbellWord* peer_bell = nullptr;
  const std::atomic<uint32_t>* peer_pulse = nullptr;  // none of this very process
  std::atomic<bool> died{false};                      // set by the death watch, which then rings my bell
  ChannelTraits traits;

  std::string name() const { return "rank " + std::to_string(peer) + " (pid " + std::to_string(pid) + ")"; }
};

// Copies memory that the peer keeps as it is until I say that I have it. kPeerLost when it died, or hung up: a peer
// that fails does so before it gives its memory back, so what was read then may be anything.
Status pull(const Link& link, uint64_t address, Bytes into);

}  // namespace braid::shm
