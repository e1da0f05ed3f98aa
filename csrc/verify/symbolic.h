// SPDX-License-Identifier: Apache-2.0
// Runs a schedule on expressions instead of numbers, and compares the result with the promise of the collective.
#pragma once

#include <functional>

#include "base/status.h"
#include "schedule/order.h"
#include "verify/memory.h"

namespace braid {

// Called for every reduce step whose whole target then holds all contributions.
using OnComplete = std::function<void(Node node, size_t round, size_t step)>;

// REQUIRES: check_structure() and check_races() accepted the schedule; `order` comes from order_of(schedule).
Status run_symbolically(const Schedule& schedule, const Order& order, const Memory& memory,
                        const OnComplete& on_complete);

}  // namespace braid
