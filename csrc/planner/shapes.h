// SPDX-License-Identifier: Apache-2.0
// One function per family and collective; planners.cc makes the table of them.
// REQUIRES (all): check(collective) accepted it.
#pragma once

#include "base/status.h"
#include "planner/planners.h"
#include "schedule/schedule.h"

namespace braid {

Schedule plan_ring_all_reduce(const Collective& collective);
Schedule plan_ring_reduce_scatter(const Collective& collective);
Schedule plan_ring_all_gather(const Collective& collective);
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
Schedule plan_pairwise(const Collective& collective);  // all_to_all

}  // namespace braid
