// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries an operation.
#include "communicator/checks.h"
#include "communicator/group.h"
#include "planner/planners.h"

namespace braid {

Status Group::make_tuner() { return {}; }

Result<std::shared_ptr<const VerifiedSchedule>> Group::schedule_for(const Operation& operation) {
  const Collective collective{operation.kind, ranks_, has_root(operation.kind) ? operation.root : 0};
  auto schedule = families(operation.kind)[0].plan(collective, {});
  if (!schedule.ok()) return schedule.status();
  auto verified = verify(std::move(schedule).value());
  if (!verified.ok()) return verified.status();
  return std::make_shared<const VerifiedSchedule>(std::move(verified).value());
}

}  // namespace braid
