// SPDX-License-Identifier: Apache-2.0
// Links between hosts that the user has stated in a file, instead of having them measured. python/braid/_links.py
// reads the file. Each rank looks up its own host there and tells the others what its NIC does, so that no rank needs
// to know how the hosts of others are called.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace braid {

struct StatedLinks {
  std::string problem;  // why the file could not be read on this rank; then nothing else counts
  std::string digest;   // of all that the file says: equal on all ranks
  Link between;         // what holds where the file says nothing else
  Topology::Nic nic;    // of this rank's host
};

// What must be equal on all ranks, in words: a problem of one of them is told to all.
std::string in_words(const StatedLinks& stated);

// The topology of ranks on `hosts`, with what each rank said of its host's NIC. kMismatch when two ranks of one host
// do not say the same: they may be in containers with different names.
Result<Topology> stated_topology(const std::vector<int>& hosts, Link within_host, Link between,
                                 const std::vector<Topology::Nic>& nics);

}  // namespace braid
