// SPDX-License-Identifier: Apache-2.0
// How a group is formed, and what they are told when they cannot.
#include <latch>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

class CreationOn : public EveryWire {};

TEST_P(CreationOn, AMissingRankIsNamed) {
  at_all_places(3, options(), [](const Place& place) {
    if (place.rank == 1) return;
    Place here = place;
    here.options.timeout = milliseconds(300);
    const auto group = here.form("test");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kTimeout) << group.status().message();
    EXPECT_EQ(group.status().rank(), 1);
    EXPECT_TRUE(says(group.status(), "rank 1 has not come")) << group.status().message();
  });
}

TEST_P(CreationOn, TheSettingThatDiffersIsNamedWithTheRank) {
  at_all_places(3, options(), [](const Place& place) {
    Place here = place;
    if (place.rank == 2) {
      here.options.window = 8;
    }
    const auto group = here.form("test");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kMismatch) << group.status().message();
    EXPECT_TRUE(says(group.status(), "BRAID_WINDOW differs")) << group.status().message();
    EXPECT_TRUE(says(group.status(), "rank 2 has \"8\"")) << group.status().message();
    EXPECT_TRUE(says(group.status(), "has \"4\"")) << group.status().message();
    EXPECT_FALSE(says(group.status(), "BRAID_CHUNK_BYTES")) << "they are equal";
  });
}

TEST_P(CreationOn, TheWiresAreDescribed) {
  on_all_ranks(2, options(), [](Communicator& group) {
    const auto lines = group.describe_wires();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[group.rank()], "rank " + std::to_string(group.rank()) + ": this process");
    const std::string& line = lines[1 - group.rank()];
    const std::string wire = GetParam().name == "tcp"   ? "tcp 127.0.0.1:"
                             : GetParam().name == "shm" ? "shm, single copy"
                                                        : "shm, copied through a ring";
    EXPECT_EQ(line.find("rank " + std::to_string(1 - group.rank()) + ": " + wire), 0u) << line;
    EXPECT_EQ(group.name(), "test");
    EXPECT_EQ(group.ranks(), 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, CreationOn, ::testing::ValuesIn(wires()), wire_name);

TEST(Creation, ForcedAlgorithmsAreUsedAndWrongOnesRefused) {
  at_all_places(2, options_for(wires()[0]), [](const Place& place) {
    Place here = place;
    here.options.algorithm = "all_reduce=ring";
    auto group = here.form("forced");
    ASSERT_TRUE(group.ok()) << group.status().message();
    std::vector<float> values(10, 1.0f);
    EXPECT_TRUE(run(*group.value(), all_reduce(values)).ok());
    ASSERT_EQ(group.value()->stats().size(), 1u);
    EXPECT_EQ(group.value()->stats()[0].algorithm, "ring");
    here.options.algorithm = "all_reduce=rnig";
    const auto wrong = here.form("misspelt");
    ASSERT_FALSE(wrong.ok());
    EXPECT_TRUE(says(wrong.status(), "rnig")) << wrong.status().message();
  });
}

// Rank 2 offers shared memory only, on another host: ranks 0 and 1 have their wire already when no wire to it is
// found, and the half-made group must go without a trace.
TEST(Creation, APairThatNoWireJoinsIsNamed) {
  at_all_places(3, options_for({"shm", "shm", true}), [](const Place& place) {
    Place here = place;
    if (place.rank == 2) here.options.host = "elsewhere";
    const auto group = here.form("test");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kUnsupported) << group.status().message();
    EXPECT_TRUE(says(group.status(), "no wire joins ranks")) << group.status().message();
    here.options.host = "here";
    const auto again = here.form("again");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(run(*again.value(), barrier()).ok());
    again.value()->shutdown();
  });
}

TEST(Creation, ImpossibleArgumentsAreRefused) {
  at_all_places(1, options_for(wires()[0]), [](const Place& place) {
    for (const auto& [rank, ranks] : std::vector<std::pair<Node, int>>{{0, 0}, {-1, 2}, {2, 2}}) {
      Place here = place;
      here.rank = rank;
      here.ranks = ranks;
      EXPECT_EQ(here.form("test").status().code(), Code::kInvalidArgument) << rank << " of " << ranks;
    }
    for (const int64_t chunk_bytes : {-64, 100}) {
      Place here = place;
      here.options.chunk_bytes = chunk_bytes;
      EXPECT_EQ(here.form("test").status().code(), Code::kInvalidArgument) << chunk_bytes;
    }
  });
}

}  // namespace
}  // namespace braid::testing
