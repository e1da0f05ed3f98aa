// SPDX-License-Identifier: Apache-2.0
#include "schedule/collective.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Collective, NamesRoundTrip) {
  for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
    EXPECT_EQ(collective_from_name(name_of(static_cast<CollectiveKind>(kind))), static_cast<CollectiveKind>(kind));
  }
  EXPECT_EQ(collective_from_name("allreduce"), std::nullopt);
  EXPECT_EQ(name_of(static_cast<CollectiveKind>(99)), "unknown");
}

TEST(Collective, ChunksOfInputAndOutput) {
  struct Case {
    CollectiveKind kind;
    int input_at_root, input_elsewhere, output_at_root, output_elsewhere;
  };
  for (const Case& c : {Case{CollectiveKind::kAllReduce, 7, 7, 7, 7}, Case{CollectiveKind::kBarrier, 7, 7, 7, 7},
                        Case{CollectiveKind::kBroadcast, 7, 0, 7, 7}, Case{CollectiveKind::kReduce, 7, 7, 7, 0},
                        Case{CollectiveKind::kReduceScatter, 4, 4, 1, 1},
                        Case{CollectiveKind::kAllGather, 1, 1, 4, 4}, Case{CollectiveKind::kAllToAll, 4, 4, 4, 4},
                        Case{CollectiveKind::kGather, 1, 1, 4, 0}, Case{CollectiveKind::kScatter, 4, 0, 1, 1}}) {
    Collective collective{c.kind, 4, has_root(c.kind) ? 2 : 0};
    Node root = collective.root;
    int chunks = is_vector(c.kind) ? 7 : 4;
    EXPECT_EQ(input_chunks(collective, chunks, root), c.input_at_root) << name_of(c.kind);
    EXPECT_EQ(input_chunks(collective, chunks, 1), c.input_elsewhere) << name_of(c.kind);
    EXPECT_EQ(output_chunks(collective, chunks, root), c.output_at_root) << name_of(c.kind);
    EXPECT_EQ(output_chunks(collective, chunks, 1), c.output_elsewhere) << name_of(c.kind);
  }
}

TEST(Collective, CheckRefusesWhatCannotBe) {
  EXPECT_TRUE(check({CollectiveKind::kBroadcast, 4, 3}).ok());
  EXPECT_TRUE(check({CollectiveKind::kAllReduce, kMaxRanks, 0}).ok());
  for (Collective wrong :
       {Collective{CollectiveKind::kBroadcast, 4, 4}, Collective{CollectiveKind::kBroadcast, 4, -1},
        Collective{CollectiveKind::kAllReduce, 4, 1}, Collective{CollectiveKind::kAllReduce, 0, 0},
        Collective{CollectiveKind::kAllReduce, kMaxRanks + 1, 0},
        Collective{static_cast<CollectiveKind>(9), 4, 0}}) {
    EXPECT_EQ(check(wrong).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace braid
