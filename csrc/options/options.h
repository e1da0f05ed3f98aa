// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/look_up.h"
#include "base/status.h"
#include "base/store.h"
#include "options/stated_links.h"

namespace braid {

// How many aggregators a job may have.
inline constexpr int kMostServers = 64;

// Settings of one group. Those marked (*) must be equal on all ranks; group creation checks it.
struct Options {
  milliseconds timeout{30 * 60 * 1000};  // of an operation, and of the rendezvous
  std::string algorithm;                 // (*) forces a family: "ring" or "all_reduce=ring,broadcast=direct"
  std::string transports = "shm,tcp";    // which wires may be used
  bool single_copy = true;               // shm: read large messages straight out of the sender's memory
  std::string interface;                 // TCP: interface name or local address to listen on; "" chooses
  std::string reach;                     // TCP: a host all ranks reach; the route to it chooses the interface
  std::string host;                      // overrides what tells hosts apart (emulated hosts)
  // (*) between hosts: "" what was found today, "measure", "assume" ordinary ones, or a file that states them. The
  // core reads no such files: what it says is in `stated`.
  std::string links;
  std::optional<StatedLinks> stated;
  std::string cache_dir;              // where what was measured is remembered; "": nowhere
  milliseconds peer_timeout{20'000};  // a peer that is needed and silent for so long is lost; 0: never
  int tcp_connections = 3;            // (*) per peer and direction; of several the first is for short frames
  bool pacing = true;        // TCP: no faster to a peer than what both NICs were measured to pass, and a little
  int64_t credit_bytes = 0;  // of large messages under way to this rank's NIC; 0 chooses
  int64_t chunk_bytes = 0;   // (*) pipelining grain: a chunk of one segment; 0 chooses
  int window = 4;            // (*) segments in flight: what they cost is part of the choice
  int aggregators = 0;       // (*) so many of the group's last nodes only add up
  // Where aggregators register that would join the group later, a store of its own; null: none may. The first rank
  // waits for so many of them before the group is ready.
  std::shared_ptr<Store> servers;
  int await_servers = -1;            // -1: none may join
  milliseconds stall_notice{30000};  // a line about an operation that has waited so long; 0: none
  GiveUp give_up;                    // asked while the group forms, in the thread that forms it; never afterwards
};

// Whether BRAID_LINKS names a file, which ends in .toml.
bool is_links_file(const std::string& links);

// The defaults, changed by BRAID_ALGORITHM, BRAID_TRANSPORTS, BRAID_SINGLE_COPY, BRAID_INTERFACE, BRAID_HOST,
// BRAID_LINKS, BRAID_TCP_CONNECTIONS, BRAID_PACING, BRAID_CHUNK_BYTES, BRAID_CREDIT_BYTES, BRAID_WINDOW, BRAID_SERVERS,
// BRAID_PEER_TIMEOUT and BRAID_STALL_NOTICE; `reach` is MASTER_ADDR, `cache_dir` is BRAID_CACHE_DIR,
// XDG_CACHE_HOME/braid or ~/.cache/braid.
// kInvalidArgument names the variable that makes no sense. `stated` is left to the caller.
Result<Options> options_from_env();

}  // namespace braid
