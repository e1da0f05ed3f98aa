// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tuner/tuner.h"

namespace braid::testing {

inline constexpr int64_t kTiny = 8;
inline constexpr int64_t kHuge = int64_t{1} << 28;

inline Choice chosen(const Collective& collective, int64_t bytes, const Topology& topology,
                     DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum,
                     const TunerOptions& options = {}) {
  ScheduleCache cache;
  Result<Choice> choice = choose(collective, dtype, op, bytes, topology, options, cache);
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  return choice.ok() ? choice.value() : Choice();
}

inline std::set<std::string> considered(const Choice& choice) {
  std::set<std::string> names = {choice.algorithm};
  for (const Candidate& candidate : choice.runners_up) names.insert(candidate.algorithm);
  return names;
}

}  // namespace braid::testing
