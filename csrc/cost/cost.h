// SPDX-License-Identifier: Apache-2.0
// Predicts how long a schedule takes, in the alpha-beta-gamma model with one port each way per node (Hockney 1994;
// Thakur, Rabenseifner, Gropp 2005). Each message has a cost, too: the "o" of LogP (Culler et al. 1993).
//
// A node has a port out and a port in. Each port has two parts: memory, for nodes of its host, and its part of the
// host's NIC, for others. A node's part of the NIC is its part of the bytes that the host sends (or receives) over
// the NIC in this schedule. So a leader that sends alone has the whole NIC. Four nodes that send equally much have
// a quarter each, even in rounds in which some of them are silent.
//
// The messages of one round of a node share the port:
//   busy = overheads of all messages + max over memory and NIC of
//          max(sum of bytes * beta of the memory or of its part of the NIC,
//              max over messages of bytes * beta of their link)
// A link of its own that is faster than the NIC is not slowed by it. A message of round A of its sender and round
// B of its receiver arrives at
//   max(start A, start B) + alpha + max(busy out A, busy in B)
// Latencies overlap; messages that share a port do not. Once all messages of a round are there, its local steps
// run. A reduce of k sources moves k+1 bytes of memory per byte, a copy 2; moving 3 bytes takes reduce_s_per_byte.
//
// Where `sharers` ranks share each core, a node's processor also works for the other ranks. Messages over NICs
// cost the processors time; a rank's part of this time is added sharers - 1 times (Graham's bound for a list
// schedule, 1969). With several segments this time passes while the NICs are busy with other segments, and is not
// added.
//
// A chunk with share 0 is not sent and takes no time. In the first segment NICs pass the topology's burst in no
// time, out and in: the bytes that go first. The nodes of a host have equal parts of the burst.
//
// Cut into Q segments, of which W overlap, a schedule takes the time of one segment, and Q-1 times the longer of
//   - the time that one segment occupies its busiest memory, NIC, link of its own or node's reducing: while a segment
//     comes back, the next one goes out;
//   - a W-th of the time of one segment: no more than W are under way.
//
// For the ring with Q = 1 this is 2(n-1)(alpha + overhead) + 2(n-1)/n S beta + (n-1)/n S gamma.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

struct Rates {
  double reduce_s_per_byte = 1.5e-10;  // gamma: two sources into a third place, per byte of the result
  double overhead_s = 2e-7;            // per message, at its sender and at its receiver
  double nic_overhead_s = 0;           // in addition per message to or from another host, on a whole core
  double sharers = 1;                  // ranks per core, at least 1; the other rates are those of a rank's part
  double code_s_per_byte = 0;          // to encode a byte for another host, or to decode one from there
  bool writes_once = false;            // a message to several nodes of the host leaves its sender once
};

// How whoever runs the schedule cuts the operation (schedule/segments.h counts).
struct Pipeline {
  int64_t segments = 1;
  int window = 4;  // in flight
};

// The seconds until the last node is done, all having begun together. `bytes` are those of all chunks together:
// the vector, or all ranks' blocks. Only + * / min and max of the arguments, in an order that the schedule fixes:
// ranks that share them share the result. REQUIRES: verify() accepts the schedule.
// kInvalidArgument when bytes is negative, segments or window below 1, or the topology has other nodes.
Result<double> predict_s(const Schedule& schedule, int64_t bytes, const Topology& topology, const Rates& rates,
                         const Pipeline& pipeline = {});

}  // namespace braid
