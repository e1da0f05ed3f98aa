// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "planner/planners.h"
#include "verify/verify.h"

namespace braid::testing {

// All roots for few ranks, else the first, one in the middle and the last.
inline std::vector<Collective> collectives(CollectiveKind kind, int ranks) {
  if (!has_root(kind)) return {{kind, ranks, 0}};
  std::vector<Collective> all;
  for (Node root = 0; root < ranks; ++root) {
    if (ranks <= 5 || root == 0 || root == ranks / 2 || root == ranks - 1) all.push_back({kind, ranks, root});
  }
  return all;
}

// Calls visit(algorithm, collective) for all of them.
template <class Visit>
void for_every_algorithm(const std::vector<int>& world_sizes, const Visit& visit) {
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    for (const Algorithm& algorithm : algorithms(static_cast<CollectiveKind>(kind))) {
      for (int ranks : world_sizes) {
        for (const Collective& collective : collectives(algorithm.kind, ranks)) visit(algorithm, collective);
      }
    }
  }
}

// The algorithm's schedule, proved.
inline std::shared_ptr<const VerifiedSchedule> planned(const Algorithm& algorithm, const Collective& collective,
                                                       const PlanOptions& options = {}) {
  auto schedule = algorithm.plan(collective, options);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  auto verified = verify(std::move(schedule).value());
  EXPECT_TRUE(verified.ok()) << verified.status().message();
  return std::make_shared<const VerifiedSchedule>(std::move(verified).value());
}

inline std::vector<int> one_to(int last) {
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= last; ++ranks) sizes.push_back(ranks);
  return sizes;
}

}  // namespace braid::testing
