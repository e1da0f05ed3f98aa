// SPDX-License-Identifier: Apache-2.0
// The constants that the tuner gets about the machines. A running group and `braid explain` use the same.
#pragma once

#include <memory>

#include "base/status.h"
#include "options/options.h"
#include "topology/topology.h"
#include "tuner/tuner.h"

namespace braid {

// Ranks of one host in a group of several hosts, each with a core of its own.
inline constexpr Link kWithinHost{2e-6, kMemory_s_per_byte};
// Links between hosts that are neither measured nor stated: a gigabit network. Equal on all ranks, so that all
// ranks make the same choice.
inline constexpr Link kBetweenHosts{5e-5, 8e-9};

// How the ranks of a group on one host are connected.
struct Inside {
  bool board = true;  // the ranks have shared boards
  double ranks_per_core = 1;
};
Link link_inside(const Inside& inside);

// The link between ranks of one host in a group of several hosts, if `ranks_per_core` ranks share a core.
Link link_within_hosts(double ranks_per_core);

// Makes the tuner for a group on this topology. The topology's within_host() must come from link_inside() or
// link_within_hosts(): it tells how many ranks share a core. Uses `algorithm`, `chunk_bytes` and `window` of the
// options.
// kInvalidArgument for an unknown name in options.algorithm.
Result<std::unique_ptr<Tuner>> tuner_for(Topology topology, const Options& options);

}  // namespace braid
