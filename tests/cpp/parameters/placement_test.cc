// SPDX-License-Identifier: Apache-2.0
#include "parameters/placement.h"

#include <gtest/gtest.h>

#include <limits>

namespace braid {
namespace {

TEST(Placement, CoversEveryElementOnce) {
  for (const size_t elements : {0u, 1u, 15u, 16u, 17u, 1000u, 100003u}) {
    for (const size_t servers : {1u, 2u, 3u, 7u, 8u}) {
      const auto extents = place(elements, servers, {});
      ASSERT_TRUE(extents.ok());
      size_t next = 0;
      for (const Extent& extent : extents.value()) {
        EXPECT_EQ(extent.begin, next);
        next += extent.count;
      }
      EXPECT_EQ(next, elements) << servers;
    }
  }
}

TEST(Placement, FollowsTheShares) {
  const auto extents = place(1600, 3, {1, 0, 3}).value();
  EXPECT_EQ(extents[0].count, 400u);
  EXPECT_EQ(extents[1].count, 0u);
  EXPECT_EQ(extents[2].count, 1200u);
}

TEST(Placement, GivesTheRestToTheLastServerWithAShare) {
  const auto extents = place(100, 3, {1, 1, 0}).value();
  EXPECT_EQ(extents[0].count, 48u);
  EXPECT_EQ(extents[1].count, 52u);
  EXPECT_EQ(extents[2].count, 0u);
}

TEST(Placement, RefusesSharesThatAreNone) {
  EXPECT_EQ(place(10, 2, {1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(place(10, 2, {0, 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(place(10, 2, {-1, 2}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(place(10, 1, {std::numeric_limits<double>::infinity()}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(place(10, 0, {}).status().code(), Code::kInvalidArgument);
}

TEST(Placement, TheNextLivingServerTakesOver) {
  EXPECT_EQ(successor_of(0, {false, true, true}), 1);
  EXPECT_EQ(successor_of(2, {true, true, false}), 0);
  EXPECT_EQ(successor_of(1, {false, false, true}), 2);
  EXPECT_EQ(successor_of(0, {false, false}), -1);
}

// Two servers with four equal shards each.
const std::vector<Extent> kEight(8, Extent{0, 16});
const std::vector<int> kHalves{0, 0, 0, 0, 1, 1, 1, 1};

TEST(SharesForANewcomer, MakeTheFullestLessFull) {
  EXPECT_EQ(shares_for_newcomer(kEight, kHalves, {1, 1, 1}, 1000), (std::vector<size_t>{0, 4}));
  EXPECT_TRUE(shares_for_newcomer(kEight, {0, 0, 0, 1, 1, 1, 2, 2}, {1, 1, 1}, 1000).empty());
  EXPECT_EQ(shares_for_newcomer({{0, 16}, {16, 16}}, {1, 1}, {1, 1, 1}, 1000), (std::vector<size_t>{0}));
  EXPECT_TRUE(shares_for_newcomer({{0, 16}, {16, 16}}, {0, 1}, {1, 1, 1}, 1000).empty());
}

TEST(SharesForANewcomer, FollowWeightsAndMemory) {
  EXPECT_EQ(shares_for_newcomer(kEight, kHalves, {1, 1, 6}, 1000).size(), 6u);
  EXPECT_EQ(shares_for_newcomer(kEight, kHalves, {1, 1, 1}, 31), (std::vector<size_t>{0}));
  EXPECT_TRUE(shares_for_newcomer(kEight, kHalves, {1, 1, 1}, 15).empty());
  EXPECT_TRUE(shares_for_newcomer({{0, 0}, {0, 0}}, {0, 0}, {1, 1}, 1000).empty()) << "nothing is in them";
  EXPECT_EQ(shares_for_newcomer({{0, 16}}, {0}, {0, 1}, 1000).size(), 1u) << "where nothing should be";
}

}  // namespace
}  // namespace braid
