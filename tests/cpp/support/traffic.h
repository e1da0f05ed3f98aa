// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace braid::testing {

// Elements that a node sends in all its rounds, of a vector of `count`.
inline int64_t sent(const Schedule& schedule, Node node, int64_t count) {
  const std::vector<int64_t> offsets = chunk_offsets(schedule, count);
  int64_t total = 0;
  for (const Round& round : schedule.programs[node]) {
    for (const Step& step : round) {
      if (step.op != Op::kSend) continue;
      total += offsets[step.target.first + step.target.count] - offsets[step.target.first];
    }
  }
  return total;
}

}  // namespace braid::testing
