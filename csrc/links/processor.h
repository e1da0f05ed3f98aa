// SPDX-License-Identifier: Apache-2.0
// What this host's processor takes to add floats and to code them: measured, since it differs by a factor of four
// between processors, and decides whether a codec pays on a fast network.
#pragma once

#include "base/status.h"
#include "links/control_channel.h"
#include "topology/topology.h"

namespace braid {

// Seconds per byte of float32 for one core: "reduce", of two sources into a third place, and every codec by its name,
// of encoding with a residual or decoding into a sum, whichever is meant the mean of both. The sparse ones send one
// element of a hundred there, and of a thousand in "top_k_1000" and "random_k_1000". Measured when first asked for, in
// some 10 ms, once in this process.
const Topology::Work& processor_rates();

// Of each kind of work the slowest node's rate, the same on all to the last bit. Called by all `nodes` at the same time,
// with as many kinds; uses one step of the control channel.
Result<Topology::Work> slowest_of_all(ControlChannel& control, Node rank, int nodes, Topology::Work rates);

}  // namespace braid
