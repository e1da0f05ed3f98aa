// SPDX-License-Identifier: Apache-2.0
// Verified schedules, drawn and proved once each: both take far longer than a small collective.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "base/status.h"
#include "planner/planners.h"
#include "verify/verify.h"

namespace braid {

using SharedSchedule = std::shared_ptr<const VerifiedSchedule>;

// Thread-safe. What it returns stays valid without it.
class ScheduleCache {
 public:
  // Errors of the planner and the verifier are passed on, and not kept; kInvalidArgument for an unknown family.
  Result<SharedSchedule> get(const Collective& collective, std::string_view family,
                             const PlanOptions& options = {});

 private:
  using Key = std::tuple<CollectiveKind, int, Node, std::string, PlanOptions>;

  std::mutex mutex_;
  std::map<Key, SharedSchedule> schedules_;  // guarded by mutex_
};

}  // namespace braid
