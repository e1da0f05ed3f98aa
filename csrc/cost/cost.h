// SPDX-License-Identifier: Apache-2.0
// Predicts how long a schedule takes, in the alpha-beta-gamma model with one port each way per node (Hockney 1994;
// Thakur, Rabenseifner, Gropp 2005). Each message has a cost, too: the "o" of LogP (Culler et al. 1993).
//
// A node has a port out and a port in. Each port has two parts: the memory, for messages inside the host, and a
// share of the host's NIC, for messages to other hosts. A node's share of the NIC is its fraction of the bytes
// that the host sends (or receives) over the NIC in this schedule. So a leader that sends alone has the whole NIC.
// Four nodes that send equally much have a quarter each, even in rounds in which some of them are silent.
//
// The messages of one round of a node share the port:
//   busy = overheads of all messages + max over memory and NIC of
//          max(sum of bytes * beta of the memory or of the node's share of the NIC,
//              max over messages of bytes * beta of their link)
// A link set by Topology::set_link() that is faster than the NIC is not slowed by the NIC. A message that is sent
// in the sender's round A and received in the receiver's round B arrives at
//   max(start A, start B) + alpha + max(busy out A, busy in B)
// Latencies overlap; messages that share a port do not. The local steps of a round run when all its messages have
// arrived. Per byte of its result, a reduce of k sources moves k+1 bytes of memory, and a copy moves 2. Moving 3
// bytes takes reduce_s_per_byte.
//
// If `sharers` ranks share each core, a node's processor also works for the other ranks. Messages over NICs cost
// processor time. The average of this time per rank is added sharers - 1 times (Graham's bound for a list
// schedule, 1969). It is not added if there are several segments: then it passes while the NICs move other
// segments.
//
// A chunk with share 0 is not sent and takes no time. In the first segment NICs pass the first bytes, as many as
// the topology's burst, in no time, out and in. The nodes of a host have equal parts of the burst.
//
// A schedule that runs in Q segments, W of them in flight, takes the time of one segment, plus Q-1 times the
// longer of
//   - the time for which one segment occupies the busiest memory, NIC, special link, or node's local steps: a
//     segment goes out while the one before it comes back;
//   - a W-th of the time of one segment: no more than W segments are in flight.
//
// For the ring with Q = 1 this is 2(n-1)(alpha + overhead) + 2(n-1)/n S beta + (n-1)/n S gamma.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

struct Rates {
  double reduce_s_per_byte =
      kMemory_s_per_byte;      // gamma: add two sources into a third place, per byte of the result
  double overhead_s = 2e-7;    // per message, at its sender and at its receiver
  double nic_overhead_s = 0;   // per message to or from another host, in addition, on a whole core
  double sharers = 1;          // ranks per core, at least 1; other rates are for one rank's part of a core
  double code_s_per_byte = 0;  // to encode a byte for another host, or to decode a byte from there
  bool writes_once = false;    // the sender writes a message once for all receivers on its host
};

// How the executor cuts the operation (schedule/segments.h counts the segments).
struct Pipeline {
  int64_t segments = 1;
  int window = 4;  // in flight
};

// Returns the seconds from the common start of all nodes until the last node is done. `bytes` is the size of all
// chunks together: of the vector, or of all ranks' blocks. Uses only + * / min and max, in an order that the
// schedule fixes, so ranks with equal arguments get equal results. REQUIRES: verify() accepts the schedule.
// kInvalidArgument if bytes is negative, if segments or window is below 1, or if the topology has another number
// of nodes than the schedule.
Result<double> predict_s(const Schedule& schedule, int64_t bytes, const Topology& topology, const Rates& rates,
                         const Pipeline& pipeline = {});

}  // namespace braid
