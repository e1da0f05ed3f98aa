// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new group find each other. The ranks exchange their endpoints through the store. Then they
// find out which wires reach whom, and give the mailbox a channel to every peer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/store.h"
#include "engine/engine_impl.h"
#include "topology/topology.h"
#include "transport/mailbox.h"
#include "transport/wire.h"

namespace braid {

// The wires of a group. Close the mailbox before they are destroyed.
struct Wires {
  std::vector<std::unique_ptr<Wire>> list;       // the preferred one first
  std::unique_ptr<shm::Board> board;             // null unless all ranks share memory
  std::atomic<uint64_t>* stream_word = nullptr;  // the word of the wire that has one
  std::vector<int> hosts;                        // per rank: number of its host, by first appearance
  std::vector<std::string> host_addresses;       // per rank: its host and address: the key of measured links
  std::vector<Topology::Nic> rates;       // per rank: the stated rates of its host's NIC; empty if none are stated
  Topology::Work memory;                  // median rates of all ranks' memory; empty if not measured
  double ranks_per_core = 1;              // of this rank's machine
  double most_ranks_per_core = 1;         // of the most crowded machine, at least 1; the same on all ranks
  bool readable = false;                  // every rank can read the memory of every other
  std::vector<std::string> places;        // per rank: "node7 (pid 4711)"
  std::vector<std::string> descriptions;  // per rank: "rank 1: shm, single copy", "rank 2: tcp 10.0.0.2:4711"

  // Of all wires together (transport/wire.h).
  NicRates take_rates();
  void leave();
  void wait_for_last_words(Deadline deadline);
};

// Connects a group by the wires in `wires.list`, made for this rank. Fills in the rest of `wires`. Waits for all
// ranks, at most options.timeout. A failure names the rank that is missing, or the setting that differs and the rank
// that has it. `mailbox` may have channels that need `wires`, also after a failure.
Status run_rendezvous(EngineImpl& engine, Store& store, Node rank, int ranks, const std::string& name,
                      const Options& options, Mailbox& mailbox, Wires& wires);

}  // namespace braid
