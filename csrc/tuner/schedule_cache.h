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
#include <vector>

#include "base/status.h"
#include "verify/verify.h"

namespace braid {

using SharedSchedule = std::shared_ptr<const VerifiedSchedule>;

// Thread-safe. What it returns stays valid without it.
class ScheduleCache {
 public:
  // `shares` must be empty for families that take none. Errors of the planner and the verifier are passed on, and
  // not kept; kInvalidArgument for an unknown family.
  Result<SharedSchedule> get(const Collective& collective, std::string_view family,
                             const std::vector<uint64_t>& shares = {});

 private:
  using Key = std::tuple<CollectiveKind, int, Node, std::string, std::vector<uint64_t>>;

  std::mutex mutex_;
  std::map<Key, SharedSchedule> schedules_;  // guarded by mutex_
};

}  // namespace braid
