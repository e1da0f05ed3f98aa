// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "communicator/statistics.h"
#include "executor/board_plan.h"
#include "schedule/collective.h"
#include "tuner/schedule_cache.h"

namespace braid {

// What the route of an operation depends on.
struct RouteKey {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Node root = 0;
  uint32_t codec = 0;
  int64_t bytes = 0;

  bool operator==(const RouteKey&) const = default;
};

// How operations of some kind and size are carried.
struct Route {
  SchedulePtr schedule;
  BoardPlan board;         // used if possible: over the boards; if not, through the mailbox
  size_t chunk_bytes = 0;  // chunk size through the mailbox
  int plan = 0;            // the number of the plan when the route was made
  Statistics::Row* counters = nullptr;
};

}  // namespace braid
