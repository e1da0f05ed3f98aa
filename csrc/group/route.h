// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "communicator/statistics.h"
#include "executor/board_plan.h"
#include "tuner/schedule_cache.h"

namespace braid {

// How operations of some kind and size are carried.
struct Route {
  SchedulePtr schedule;
  BoardPlan board;         // used if possible: over the boards; if not, through the mailbox
  size_t chunk_bytes = 0;  // chunk size through the mailbox
  int plan = 0;            // the number of the plan when the route was made
  Statistics::Row* counters = nullptr;
};

}  // namespace braid
