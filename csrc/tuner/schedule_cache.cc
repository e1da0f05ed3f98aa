// SPDX-License-Identifier: Apache-2.0
#include "tuner/schedule_cache.h"

#include <utility>

namespace braid {

Result<SchedulePtr> ScheduleCache::get(const Collective& collective, std::string_view family,
                                       const PlanOptions& options) {
  Key key{collective.kind, collective.ranks, collective.root, std::string(family), options};
  {
    std::lock_guard lock(mutex_);
    auto found = schedules_.find(key);
    if (found != schedules_.end()) return found->second;
  }
  const Family* planner = find_family(collective.kind, family);
  if (planner == nullptr) {
    return Status(Code::kInvalidArgument,
                  std::string(name_of(collective.kind)) + " has no family \"" + std::string(family) + "\"");
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
