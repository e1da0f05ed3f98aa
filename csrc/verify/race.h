// SPDX-License-Identifier: Apache-2.0
// Messages of one round move in any order, so no result may depend on that order.
#pragma once

#include "base/status.h"
#include "verify/memory.h"

namespace braid {

// REQUIRES: check_structure() accepted the schedule.
Status check_races(const Schedule& schedule, const Memory& memory);

}  // namespace braid
