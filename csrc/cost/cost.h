// SPDX-License-Identifier: Apache-2.0
// How long a schedule takes, in the alpha-beta-gamma model with one port each way per node (Hockney 1994; Thakur,
// Rabenseifner, Gropp 2005) and a cost per message, the "o" of LogP (Culler et al. 1993).
//
// A node has a port out and a port in, each split in two: its memory (to nodes of its host) and its part of its
// host's NIC (to others). A host's NIC is shared by its nodes: each gets the part that its bytes are of all that
// the host sends (or receives) over the NIC in this schedule. So a leader that sends alone has the whole NIC,
// and four nodes that send as much as each other have a quarter each, also in rounds in which others are silent.
// The messages of one round of a node share the port:
//   busy = overheads of all messages + max over memory and NIC of
//          max(sum of bytes * beta of the memory or of its part of the NIC,
//              max over messages of bytes * beta of their link)
// (a link of its own that is faster than the NIC is not slowed by it). A message of round A of its sender and
// round B of its receiver has arrived at
//   max(start A, start B) + alpha + max(busy out A, busy in B):
// latencies overlap, what shares a port does not. When all its messages have, the round's local steps run: a
// reduce of k sources moves k+1 bytes of memory per byte, a copy 2, and 3 of them take reduce_s_per_byte.
//
// Where `sharers` ranks share each core, a node's processor also works for the others: all that messages over NICs
// cost the processors, a rank's part of it, comes sharers - 1 times on top (Graham's bound for a list schedule, 1969).
// In several segments that passes while the NICs are busy with others.
//
// What has the share 0 is not sent, and takes nothing. Of the first segment, NICs pass the topology's burst without
// taking any time, out and in, the nodes of a host an equal part each: the bytes that go first.
//
// Cut into Q segments, of which W overlap, a schedule takes the time of one, and Q-1 times the longer of
//   - what its busiest memory, NIC, link of its own or node's reducing is occupied by one: while a segment comes
//     back, the next goes out;
//   - a W-th of the time of one: no more than W are under way.
//
// For the ring with Q = 1 this is 2(n-1)(alpha + overhead) + 2(n-1)/n S beta + (n-1)/n S gamma.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

namespace braid {

struct Rates {
  double reduce_s_per_byte = 1.5e-10;  // gamma: of two sources into a third place, per byte of the result
  double overhead_s = 2e-7;            // of one message, at its sender and at its receiver
  double nic_overhead_s = 0;           // what one to or from another host takes longer, of a whole core
  double sharers = 1;                  // ranks per core, at least 1: the other rates are of a rank's part of it
  double code_s_per_byte = 0;          // of encoding what goes to another host, or decoding what comes from there
  bool writes_once = false;            // what a node sends to several of its host in one round leaves it once
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
