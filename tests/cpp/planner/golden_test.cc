// SPDX-License-Identifier: Apache-2.0
// Dumps to read, and to see changes in review. BRAID_UPDATE_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/env.h"
#include "planner/planners.h"
#include "schedule/text.h"

namespace braid {
namespace {

void expect_golden(const std::string& algorithm, int ranks, const PlanOptions& options = {}) {
  std::string path = std::string(BRAID_GOLDEN_DIR) + "/all_reduce_" + algorithm + "_" + std::to_string(ranks);
  if (options.aggregators > 0) path += "_and_" + std::to_string(options.aggregators);
  path += ".txt";
  Result<Schedule> schedule =
      find_algorithm(CollectiveKind::kAllReduce, algorithm)->plan({CollectiveKind::kAllReduce, ranks, 0}, options);
  ASSERT_TRUE(schedule.ok());
  std::string drawn = to_text(schedule.value());
  if (env_string("BRAID_UPDATE_GOLDEN")) std::ofstream(path) << drawn;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(drawn, golden.str()) << path;
}

TEST(Golden, RingOfThree) { expect_golden("ring", 3); }
TEST(Golden, DirectOfFour) { expect_golden("direct", 4); }
TEST(Golden, HalvingDoublingOfFive) { expect_golden("halving_doubling", 5); }
TEST(Golden, DoubleTreeOfFive) { expect_golden("double_tree", 5); }
TEST(Golden, HierarchicalDirectOfTwiceTwo) { expect_golden("hierarchical_direct", 4, {{}, {0, 0, 1, 1}}); }
TEST(Golden, DirectOfTwoWithAnAggregator) { expect_golden("direct", 2, {{}, {}, 1}); }

}  // namespace
}  // namespace braid
