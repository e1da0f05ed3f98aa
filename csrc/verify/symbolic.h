// SPDX-License-Identifier: Apache-2.0
// Runs a schedule on expressions instead of numbers and compares the end with what the collective promises.
#pragma once

#include <functional>

#include "base/status.h"
#include "schedule/order.h"
#include "verify/memory.h"

namespace braid {

// Told of every reduce step whose whole target ends up with all contributions.
using OnComplete = std::function<void(Node node, size_t round, size_t step)>;

// REQUIRES: check_structure() and check_races() accepted the schedule; `order` is its order.
Status run_symbolically(const Schedule& schedule, const Order& order, const Memory& memory,
                        const OnComplete& on_complete);

}  // namespace braid
