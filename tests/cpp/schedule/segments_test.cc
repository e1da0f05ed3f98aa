// SPDX-License-Identifier: Apache-2.0
#include "schedule/segments.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Segments, OfVectorsAreEqualAndWholeLines) {
  for (size_t bytes : {1, 63, 64, 65, 1000, 4096, 100'000, 1 << 20}) {
    for (size_t aimed : {64, 192, 1024, 65'536}) {
      const Segments cut = cut_vector(bytes, aimed);
      EXPECT_TRUE(cut.grain_bytes % 64 == 0 || cut.count == 1);
      EXPECT_LE(cut.grain_bytes, aimed + 64);
      EXPECT_LT(cut.grain_bytes * static_cast<size_t>(cut.count - 1), bytes);
      EXPECT_GE(cut.grain_bytes * static_cast<size_t>(cut.count), bytes);
    }
  }
  EXPECT_EQ(cut_vector(1000, 1 << 20).grain_bytes, 1000u);
  EXPECT_EQ(cut_vector(100'000, 30'000).grain_bytes, 25'024u);
}

TEST(Segments, OfBlocksAreFull) {
  EXPECT_EQ(cut_blocks(1000, 256).count, 4);
  EXPECT_EQ(cut_blocks(1000, 256).grain_bytes, 256u);
  EXPECT_EQ(cut_blocks(100, 256).grain_bytes, 128u);
}

TEST(Segments, OfAScheduleCountChunksOrBlocks) {
  Schedule schedule;
  schedule.collective = {CollectiveKind::kAllReduce, 4, 0};
  schedule.chunks = 4;
  EXPECT_EQ(segments_of(schedule, 0, 1024), 1);
  EXPECT_EQ(segments_of(schedule, 4096, 1024), 1);
  EXPECT_EQ(segments_of(schedule, 4097, 1024), 2);
  EXPECT_EQ(segments_of(schedule, 1 << 20, 1024), (1 << 20) / (4096 + 64) + 1);  // the last has the rest
  schedule.chunks = 1;
  EXPECT_EQ(segments_of(schedule, 1 << 20, 1 << 18), 4);
  schedule.collective.kind = CollectiveKind::kAllGather;
  schedule.chunks = 4;
  EXPECT_EQ(segments_of(schedule, 1 << 20, 1 << 16), 4);  // blocks of 2^18
}

}  // namespace
}  // namespace braid
