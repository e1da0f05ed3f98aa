// SPDX-License-Identifier: Apache-2.0
// What torch.profiler and execution traces see of an operation.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

// The group, as it is shown.
struct ProfiledGroup {
  std::string uid;
  std::string description;
  int rank = 0;
  int size = 1;
  std::vector<int64_t> global_ranks;
};

// What the flight recorder calls the operation.
const char* name_in_records(::c10d::OpType type);

// While in scope, a "record_param_comms" event with what trace tools ask of an operation. For when somebody records.
class CommsRecord {
 public:
  CommsRecord(const ProfiledGroup& group, const Call& call, uint64_t sequence);

 private:
  std::optional<c10::DebugInfoGuard> info_;
  std::vector<c10::IValue> inputs_;  // the event only refers to them
  std::optional<at::RecordFunction> event_;
};

}  // namespace braid::adapter
