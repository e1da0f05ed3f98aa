// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new group find each other: everybody puts an endpoint into the store, reads the others', finds out
// who shares memory with whom, and gives the mailbox a wire to every peer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/store.h"
#include "engine/engine_impl.h"
#include "topology/topology.h"
#include "transport/mailbox.h"

namespace braid {

// A group's wires. Destroy after the mailbox is closed.
struct Wires {
  std::unique_ptr<ShmGroup> shm;
  std::unique_ptr<shm::Board> board;  // when all ranks share memory
  std::shared_ptr<TcpGroup> tcp;
  std::vector<int> hosts;  // per rank: number of its host, by first appearance
  std::vector<std::string>
      host_addresses;                // per rank: its host, and the address there; links are found between these
  std::vector<Topology::Nic> rates;  // per rank: those stated of its host's NIC; empty where none are
  double ranks_per_core = 1;         // of this rank's machine
  double most_ranks_per_core = 1;    // of any rank's machine, and at least 1: the same on all ranks
  bool readable = false;             // every rank can read the memory of every other
  std::vector<std::string> places;   // per rank: "node7 (pid 4711)"
  std::vector<std::string> descriptions;  // per rank: "rank 1: shm, single copy", "rank 2: tcp 10.0.0.2:4711"
};

// Blocks until all ranks are there, at most options.timeout; a failure names who is missing, or which setting
// differs from whose. Even then `mailbox` may have channels that need `wires`.
Status run_rendezvous(EngineImpl& engine, Store& store, Node rank, int ranks, const std::string& name,
                      const Options& options, Mailbox& mailbox, Wires& wires);

}  // namespace braid
