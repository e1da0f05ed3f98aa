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

// What the route of an operation depends on. The last route is looked up by it.
struct RouteKey {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Node root = 0;
  uint32_t codec = 0;
  int64_t bytes = 0;

  bool operator==(const RouteKey&) const = default;
};

// How operations of some kind and size are carried: the verified schedule, and how it is cut.
struct Route {
  VerifiedSchedulePtr schedule;
  BoardPlan board;         // if board.possible, over the boards; otherwise through the mailbox
  size_t chunk_bytes = 0;  // chunk size through the mailbox
  int epoch = 0;           // AlgorithmChoice::epoch() when the route was made; older routes are not used any more
  Statistics::Row* counters = nullptr;
};

}  // namespace braid
