// SPDX-License-Identifier: Apache-2.0
// One function per algorithm and collective; planners.cc has the table of them.
// REQUIRES (all): check() accepted the collective, and check_hosts() accepted the hosts.
#pragma once

#include "base/status.h"
#include "planner/hosts.h"
#include "planner/planners.h"
#include "schedule/schedule.h"

namespace braid {

Schedule plan_ring_all_reduce(const Collective& collective, const Hosts& hosts);
Schedule plan_ring_reduce_scatter(const Collective& collective, const Hosts& hosts);
Schedule plan_ring_all_gather(const Collective& collective, const Hosts& hosts);
Schedule plan_doubling(const Collective& collective);          // all_reduce, barrier
Schedule plan_halving_doubling(const Collective& collective);  // all_reduce
Result<Schedule> plan_direct_all_reduce(const Collective& collective, const PlanOptions& options);
Schedule plan_direct_reduce_scatter(const Collective& collective);
Schedule plan_direct_all_gather(const Collective& collective);
Schedule plan_direct_all_to_all(const Collective& collective);
Schedule plan_direct_broadcast(const Collective& collective);
Schedule plan_direct_reduce(const Collective& collective);
Schedule plan_direct_gather(const Collective& collective);
Schedule plan_direct_scatter(const Collective& collective);
Schedule plan_gather_all(const Collective& collective);  // all_reduce, barrier
Schedule plan_binomial_broadcast(const Collective& collective);
Schedule plan_binomial_reduce(const Collective& collective);
Schedule plan_pairwise(const Collective& collective);                                                 // all_to_all
Schedule plan_double_tree(const Collective& collective, const Hosts& hosts);                          // all_reduce
Result<Schedule> plan_hierarchical_direct(const Collective& collective, const PlanOptions& options);  // all_reduce
Schedule plan_hierarchical_ring(const Collective& collective, const Hosts& hosts);                    // all_reduce
Schedule plan_hierarchical_doubling(const Collective& collective, const Hosts& hosts);                // all_reduce
Schedule plan_hierarchical_halving_doubling(const Collective& collective, const Hosts& hosts);        // all_reduce
Schedule plan_hierarchical_reduce_scatter(const Collective& collective, const Hosts& hosts);
Schedule plan_hierarchical_all_gather(const Collective& collective, const Hosts& hosts);
Schedule plan_hierarchical_broadcast(const Collective& collective, const Hosts& hosts);
Schedule plan_hierarchical_reduce(const Collective& collective, const Hosts& hosts);

}  // namespace braid
