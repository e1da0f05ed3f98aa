// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planner/hosts.h"
#include "schedule/schedule.h"

namespace braid {

// An all_reduce over ranks made of one over hosts; see hierarchical.cc. `pieces` is at least 1; more than the
// largest host has ranks are of no use. The aggregators of `between` are those of the whole, wherever they are:
// the nodes after the ranks. REQUIRES: `between` is right, has as many ranks as there are hosts, and sends no
// two messages from one to another in one round: several pieces of a rank may come in between them.
Schedule compose_all_reduce(const Collective& collective, const Hosts& hosts, const Schedule& between, int pieces,
                            const std::string& family);

}  // namespace braid
