// SPDX-License-Identifier: Apache-2.0
// How finely an operation between hosts is cut. What is under way to a NIC should fit the queue before it: a
// switch drops what does not fit, and then TCP waits.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

// The size to aim at for a chunk of one segment: a multiple of 64, when `window` segments are under way. A queue
// holds what its NIC receives in 10 ms, at least 256 KiB and at most 4 MiB. Under way to a NIC are the messages
// that its nodes receive in one round, of every segment in the window.
// The size is also at most what the slowest receiving NIC passes in 1.5 ms, but 16 KiB are always allowed. It is
// at most 256 KiB, which hide the cost of a message; this is also the size if no message leaves a host. It is at
// least 4 KiB.
//
// `ratio`: the size of a message as a part of its chunk. With a ratio below 1 chunks are larger by as much, up to
// 1 MiB. REQUIRES: verify() accepts the schedule, topology.nodes() == its nodes, window > 0.
int64_t chunk_bytes_for(const Schedule& schedule, const Topology& topology, int window, double ratio = 1);

}  // namespace braid
