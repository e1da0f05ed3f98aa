// SPDX-License-Identifier: Apache-2.0
// What this host's processor takes to add floats and to code them: measured, since it differs by a factor of four
// between processors, and decides whether a codec pays on a fast network.
#pragma once

#include "base/status.h"
#include "communicator/parley.h"
#include "topology/topology.h"

namespace braid {

// Seconds per byte of float32 for one core: "reduce", of two sources into a third place, and every codec by its name,
// of encoding with a residual or decoding into a sum, whichever is meant the mean of both. Of the sparse ones that is
// without those elements that are sent, of which a byte takes as long as "top_k_sent" or "random_k_sent" say. Measured
// when first asked for, in some 10 ms, once in this process.
const Topology::Work& processor_rates();

// Of each kind of work the slowest node's rate, the same on all to the last bit. Called by all `nodes` at the same time,
// with as many kinds; uses one step of the parley.
Result<Topology::Work> slowest_of_all(Parley& parley, Node rank, int nodes, Topology::Work rates);

}  // namespace braid
