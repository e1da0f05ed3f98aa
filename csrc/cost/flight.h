// SPDX-License-Identifier: Apache-2.0
// How finely an operation between hosts is cut. The bytes under way to a NIC should fit the queue before the NIC.
// A switch drops packets that do not fit, and then TCP waits.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

// Returns the size in bytes to aim at for a chunk of one segment, when `window` segments are in flight. The size
// is a multiple of 64. These limits hold:
//   - The bytes under way to a NIC fit its queue. They are the messages that its nodes receive in one round, of
//     every segment in the window. The queue holds the bytes that the NIC receives in kNicQueue_s, at least 256 KiB and
//     at most 4 MiB.
//   - At most the bytes that the slowest receiving NIC passes in 1.5 ms. This limit is never below 16 KiB.
//   - At most 256 KiB: this is enough to hide the cost of a message. It is the size if no message leaves a host.
//   - At least 4 KiB.
//
// `ratio` is the size of a message divided by the size of its chunk. A ratio below 1 makes chunks larger by
// 1/ratio, up to 1 MiB. REQUIRES: verify() accepts the schedule, topology.nodes() == schedule.nodes(), window > 0.
int64_t chunk_bytes_for(const Schedule& schedule, const Topology& topology, int window, double ratio = 1);

}  // namespace braid
