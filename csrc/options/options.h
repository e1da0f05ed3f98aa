// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/interruptible_wait.h"
#include "base/port_range.h"
#include "base/status.h"
#include "base/store.h"
#include "options/stated_links.h"

namespace braid {

// The most aggregators that a job may have.
inline constexpr int kMostServers = 64;

// The wires that BRAID_TRANSPORTS may name, in the order of preference.
inline constexpr std::array<std::string_view, 2> kWireNames = {"shm", "tcp"};

// How a process may wait, in the order of WaitMode (transport/waiting.h).
inline constexpr std::array<std::string_view, 4> kWaitNames = {"auto", "spin", "yield", "sleep"};

// Settings of one group. Settings marked (*) must be equal on all ranks; group creation checks this.
struct Options {
  milliseconds timeout{30 * 60 * 1000};  // for an operation, and for the rendezvous
  std::string algorithm;                 // (*) forces an algorithm: "ring" or "all_reduce=ring,broadcast=direct"
  std::string transports = "shm,tcp";    // which wires may be used
  bool single_copy = true;               // shm: read large messages directly from the sender's memory
  std::string interface;                 // TCP: interface name or local address to listen on; "": automatic
  PortRange ports;                       // TCP: where this process may listen
  std::string reach;                     // TCP: a host that all ranks reach; its route chooses the interface
  std::string host;                      // replaces the host identity, for emulated hosts
  // (*) links between hosts. "": measured ones of this day, else measure. "measure": measure. "assume": ordinary
  // links. Or the name of a file that states them: the core does not read it, its content is in `stated`.
  std::string links;
  std::optional<StatedLinks> stated;
  std::string cache_dir;              // folder of the measured links; "": they are not stored
  milliseconds peer_timeout{20'000};  // a needed peer that is silent for this long is lost; 0: never
  int tcp_connections = 3;            // (*) per peer and direction; if several, the first is for short frames
  bool pacing = true;                 // TCP: limit sends to slightly more than the measured rates of both NICs
  int64_t credit_bytes = 0;           // large-message bytes under way to this rank's NIC; 0: automatic
  int64_t chunk_bytes = 0;            // (*) size of a chunk of one segment, for pipelining; 0: automatic
  int window = 4;                     // (*) segments in flight; the choice of algorithm includes their cost
  int aggregators = 0;                // (*) how many of the group's last nodes are aggregators
  // A separate store in which aggregators register to join the group later. Null: none may join.
  std::shared_ptr<Store> servers;
  int await_servers = -1;     // (*) aggregators that the first rank waits for at the start; -1: none may join
  std::string also_equal;     // (*) further settings that the core does not read: "NAME=value", a tab after each
  std::string wait = "auto";  // one of kWaitNames, for the process
  milliseconds stall_notice{30000};  // a waiting operation is reported after this time; 0: never
  GiveUp give_up;                    // called only while the group forms, in the thread that forms it
};

// True if options.transports names the wire.
bool allows_wire(const Options& options, std::string_view wire);

// True if BRAID_LINKS names a file: its name ends in .toml.
bool is_links_file(const std::string& links);

// The defaults, changed by BRAID_ALGORITHM, BRAID_TRANSPORTS, BRAID_SINGLE_COPY, BRAID_INTERFACE, BRAID_PORTS,
// BRAID_HOST, BRAID_LINKS, BRAID_TCP_CONNECTIONS, BRAID_PACING, BRAID_CHUNK_BYTES, BRAID_CREDIT_BYTES, BRAID_WINDOW,
// BRAID_SERVERS, BRAID_PEER_TIMEOUT, BRAID_STALL_NOTICE and BRAID_WAIT; `reach` is MASTER_ADDR,
// `cache_dir` is BRAID_CACHE_DIR, XDG_CACHE_HOME/braid or ~/.cache/braid.
// kInvalidArgument names the variable with a wrong value. The caller fills in `stated`.
Result<Options> options_from_env();

}  // namespace braid
