// SPDX-License-Identifier: Apache-2.0
// How finely an operation between hosts is cut, so that what is under way to a NIC at a time does not
// overflow the queue before it: a switch that drops what it cannot hold makes TCP wait.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

// The size to aim at for a chunk of one segment, a multiple of 64, when `window` segments are under way. A queue
// is taken to hold what its NIC takes in in 10 ms, at least 256 KiB and at most 4 MiB; what a NIC may have under
// way are the messages that its nodes take in one round, of every segment in the window. No more either than what
// the slowest NIC that takes any passes in 1.5 ms, but for 16 KiB; nor than 256 KiB, which hide the cost of a message,
// and are the size where no message leaves a host. At least 4 KiB in any case.
//
// With a `ratio` below 1, of messages of that part of their chunk's bytes: as much more of the chunk, up to 1 MiB.
// REQUIRES: verify() accepts the schedule, topology.nodes() == its nodes, window > 0.
int64_t chunk_bytes_for(const Schedule& schedule, const Topology& topology, int window, double ratio = 1);

}  // namespace braid
