// SPDX-License-Identifier: Apache-2.0
// Measures how long this host's processor takes to add floats and to code them. Processors differ by a factor of
// four, and on a fast network this decides whether a codec pays.
#pragma once

#include "base/status.h"
#include "links/control_channel.h"
#include "topology/topology.h"

namespace braid {

// Seconds per byte of float32 on one core, by the name of the work. "reduce": adds two sources into a third place.
// A codec's name: the mean of encoding with a residual and decoding into a sum. Sparse codecs send one element of
// a hundred; "top_k_1000" and "random_k_1000" send one of a thousand. Measured at the first call of this process,
// in about 10 ms.
const Topology::Work& processor_rates();

// For each kind of work the rate of the slowest node; the same on all ranks, to the last bit. Called by all
// `nodes` at the same time, with as many kinds. Uses one step of the control channel.
Result<Topology::Work> slowest_of_all(ControlChannel& control, Node rank, int nodes, Topology::Work rates);

}  // namespace braid
