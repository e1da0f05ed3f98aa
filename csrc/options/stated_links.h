// SPDX-License-Identifier: Apache-2.0
// Links between hosts that the user states in a file, instead of measuring them. python/braid/_links.py reads the
// file. Each rank finds its own host there and tells the others its NIC's rates, so no rank needs the names of
// other hosts.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace braid {

struct StatedLinks {
  std::string problem;  // why this rank could not read the file; if set, ignore the other fields
  std::string digest;   // digest of the file's content; equal on all ranks
  Link between;         // the link between two hosts, unless the file says otherwise
  Topology::Nic nic;    // the NIC of this rank's host
};

// The digest or the problem, in words. It must be equal on all ranks, so a problem of one rank is told to all.
std::string in_words(const StatedLinks& stated);

// The topology of ranks on `hosts`, with the NIC that each rank states for its host. kMismatch if two ranks of one
// host state different NICs: they may be in containers with different names.
Result<Topology> stated_topology(const std::vector<int>& hosts, Link within_host, Link between,
                                 const std::vector<Topology::Nic>& nics);

}  // namespace braid
