// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planner/hosts.h"
#include "schedule/schedule.h"

namespace braid {

// Makes an all_reduce over ranks from `between`, an all_reduce over hosts; see hierarchical.cc. `pieces` is at
// least 1; more pieces than the largest host has ranks are of no use. The aggregators of `between` become the
// aggregators of the result: the nodes after the ranks. REQUIRES: verify() accepts `between`; it has one rank per
// host; no node of it sends two messages to the same node in one round, because a rank that carries several pieces
// puts messages of other pieces between the two.
Schedule compose_all_reduce(const Collective& collective, const Hosts& hosts, const Schedule& between, int pieces,
                            const std::string& algorithm);

}  // namespace braid
