// SPDX-License-Identifier: Apache-2.0
// Shows operations to torch.profiler and to execution traces.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <vector>

#include "c10d/arguments.h"

namespace braid::adapter {

// The group, as traces show it.
struct ProfiledGroup {
  std::string uid;
  std::string description;
  int rank = 0;
  int size = 1;
  std::vector<int64_t> global_ranks;
};

// The operation's name in the flight recorder.
const char* name_in_records(::c10d::OpType type);

// A "record_param_comms" event that lasts while in scope. It has the facts of an operation that trace tools need.
// Make it only while a profile or trace is recorded.
class CommsRecord {
 public:
  CommsRecord(const ProfiledGroup& group, const Call& call, uint64_t sequence);

 private:
  std::optional<c10::DebugInfoGuard> info_;
  std::vector<c10::IValue> inputs_;  // the event only refers to them
  std::optional<at::RecordFunction> event_;
};

}  // namespace braid::adapter
