// SPDX-License-Identifier: Apache-2.0
#include "tuner/schedule_cache.h"

#include <utility>

namespace braid {

Result<VerifiedSchedulePtr> ScheduleCache::get(const Collective& collective, std::string_view algorithm,
                                               const PlanOptions& options) {
  Key key{collective.kind, collective.ranks, collective.root, std::string(algorithm), options};
  {
    std::lock_guard lock(mutex_);
    auto found = schedules_.find(key);
    if (found != schedules_.end()) return found->second;
  }
  const Algorithm* planner = find_algorithm(collective.kind, algorithm);
  if (planner == nullptr) {
    return Status(Code::kInvalidArgument,
                  std::string(name_of(collective.kind)) + " has no algorithm \"" + std::string(algorithm) + "\"");
  }
  // The lock is not held here: other threads may need a schedule that exists. If two threads draw the same
  // schedule, the first one is kept.
  Result<Schedule> drawn = planner->plan(collective, options);
  if (!drawn.ok()) return drawn.status();
  Result<VerifiedSchedule> verified = verify(std::move(drawn).value());
  if (!verified.ok()) return verified.status();
  auto schedule = std::make_shared<const VerifiedSchedule>(std::move(verified).value());
  std::lock_guard lock(mutex_);
  return schedules_.try_emplace(std::move(key), std::move(schedule)).first->second;
}

}  // namespace braid
