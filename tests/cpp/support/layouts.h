// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "planner/planners.h"

namespace braid::testing {

// The host of every rank, in the forms that groups have: all on one, each on its own, hosts of two and of three
// with one left over, one large and many small, round robin, and not in one piece.
inline std::vector<std::vector<int>> layouts(int ranks) {
  std::set<std::vector<int>> all = {{}};
  auto add = [&](auto host_of) {
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(host_of(rank));
    all.insert(hosts);
  };
  add([](int) { return 0; });
  add([](int rank) { return rank; });
  add([](int rank) { return rank / 2; });
  add([](int rank) { return rank / 3; });
  add([](int rank) { return rank % 2; });
  add([](int rank) { return rank % 3; });
  add([&](int rank) { return rank + 1 == ranks ? 1 : 0; });              // 3+1
  add([](int rank) { return rank == 0 ? 0 : rank < 5 ? 1 : 2; });        // 1+4+2
  add([](int rank) { return rank < 4 ? 0 : rank - 3; });                 // 4+1+1+...
  add([](int rank) { return rank * rank % 5; });                         // 0 1 4 4 1 0 ...
  add([](int rank) { return rank < 5 ? 0 : rank < 7 ? 1 : rank % 2; });  // taken up again
  return {all.begin(), all.end()};
}

inline std::string text_of(const std::vector<int>& hosts) {
  std::string text = " hosts=";
  for (int host : hosts) text += std::to_string(host) + ",";
  return text;
}

// The algorithm's schedule; an empty one when there is none.
inline Schedule drawn_with(const Algorithm& algorithm, const Collective& collective, const PlanOptions& options) {
  Result<Schedule> schedule = algorithm.plan(collective, options);
  EXPECT_TRUE(schedule.ok()) << algorithm.name << text_of(options.hosts) << ": " << schedule.status().message();
  return schedule.ok() ? schedule.value() : Schedule();
}

}  // namespace braid::testing
