// SPDX-License-Identifier: Apache-2.0
// Keeps verified schedules. Each is drawn and verified only once, because both take far longer than a small
// collective.
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

using VerifiedSchedulePtr = std::shared_ptr<const VerifiedSchedule>;

// Thread-safe. A schedule that it returned stays valid after the cache is destroyed.
class ScheduleCache {
 public:
  // Returns errors of the planner and the verifier, and does not keep them. kInvalidArgument for an unknown algorithm.
  Result<VerifiedSchedulePtr> get(const Collective& collective, std::string_view algorithm,
                                  const PlanOptions& options = {});

 private:
  using Key = std::tuple<CollectiveKind, int, Node, std::string, PlanOptions>;

  std::mutex mutex_;
  std::map<Key, VerifiedSchedulePtr> schedules_;  // guarded by mutex_
};

}  // namespace braid
