// SPDX-License-Identifier: Apache-2.0
// What the tuner is told of the machines: by a group at work, and by whoever asks what a group would do there.
#pragma once

#include <memory>

#include "base/status.h"
#include "options/options.h"
#include "topology/topology.h"
#include "tuner/tuner.h"

namespace braid {

// Ranks of one host in a group of several hosts, each with a core of its own.
inline constexpr Link kWithinHost{2e-6, 1.5e-10};
// Where links are neither measured nor stated: a gigabit network. Equal on all ranks, so all choose alike.
inline constexpr Link kBetweenHosts{5e-5, 8e-9};

// What joins the ranks of a group that is on one host.
struct Inside {
  bool board = true;  // they share memory
  double ranks_per_core = 1;
};
Link link_inside(const Inside& inside);

// What joins the ranks of a host in a group of several hosts, where so many ranks share a core of their machine.
Link link_within_hosts(double ranks_per_core);

// The tuner of a group on this topology, whose links inside are those of link_inside() or link_within_hosts(): they
// tell how many ranks share a core. Of `options` counts what is forced, and how finely operations are cut.
// kInvalidArgument for an unknown name in options.algorithm.
Result<std::unique_ptr<Tuner>> tuner_for(Topology topology, const Options& options);

}  // namespace braid
