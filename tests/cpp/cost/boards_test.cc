// SPDX-License-Identifier: Apache-2.0
// Times over boards: what ranks touch, what they fetch, and cores that they share.
#include "cost/boards.h"

#include <gtest/gtest.h>

#include "planner/planners.h"

namespace braid {
namespace {

constexpr double kTouch = 1e-11;
constexpr double kFetch = 4e-11;
constexpr double kRound = 1e-6;
constexpr int64_t kCacheBytes = 32 << 20;
constexpr int64_t kOneSegment = 256 * 1024;  // one segment, and fits the cache
constexpr BoardCut kCut{256 * 1024};

BoardRates board_rates(double sharers = 1) {
  return {kTouch, kFetch, kRound * sharers * sharers, sharers, kCacheBytes};
}

Schedule schedule_for(CollectiveKind kind, const char* algorithm, int ranks) {
  return find_algorithm(kind, algorithm)->plan({kind, ranks, 0}, {}).value();
}

double on_boards_s(CollectiveKind kind, const char* algorithm, int ranks, int64_t bytes, double sharers = 1,
                   const BoardCut& cut = kCut) {
  return predict_on_boards_s(schedule_for(kind, algorithm, ranks), bytes, cut, board_rates(sharers));
}

void expect_touched(CollectiveKind kind, const char* algorithm, int ranks, int rounds, double touched) {
  const double expected_s = rounds * kRound + touched * kOneSegment * kTouch;
  EXPECT_NEAR(on_boards_s(kind, algorithm, ranks, kOneSegment), expected_s, expected_s * 1e-9)
      << name_of(kind) << " " << algorithm << " " << ranks;
}

TEST(Boards, CountWhatARankReadsAndWrites) {
  // Per half of the vector: copies to the board, a sum of two, and copies of sums to the board and from there.
  expect_touched(CollectiveKind::kAllReduce, "ring", 2, 2, (2 + 3 + 2 + 2) / 2.0);
  // Per quarter: three copies, a sum of four, one copy of it for all three receivers, three copies of others' sums.
  expect_touched(CollectiveKind::kAllReduce, "direct", 4, 2, (6 + 5 + 2 + 6) / 4.0);
  expect_touched(CollectiveKind::kAllReduce, "gather_all", 4, 1, 2 + 5);
  expect_touched(CollectiveKind::kReduceScatter, "direct", 4, 1, (6 + 5) / 4.0);
  expect_touched(CollectiveKind::kAllGather, "direct", 4, 1, (2 + 6 + 2) / 4.0);
  expect_touched(CollectiveKind::kAllToAll, "direct", 4, 1, (6 + 6 + 2) / 4.0);
  expect_touched(CollectiveKind::kBroadcast, "direct", 4, 1, 2 + 2);
}

TEST(Boards, SegmentsOfABroadcastOverlap) {
  const double one_s = on_boards_s(CollectiveKind::kBroadcast, "direct", 3, kOneSegment);
  const double four_s = on_boards_s(CollectiveKind::kBroadcast, "direct", 3, 4 * kOneSegment);
  // The root copies the next segment while the others copy the last: 2 + 2 turns for one, 2 more for each other.
  EXPECT_NEAR(four_s - one_s, 3 * (kRound + 2 * kOneSegment * kTouch), 1e-12);
  // Segments that do not overlap take all turns again.
  const BoardCut apart{256 * 1024, 4};
  const double ring_s = on_boards_s(CollectiveKind::kAllReduce, "ring", 3, 3 * kOneSegment, 1, apart);
  EXPECT_NEAR(on_boards_s(CollectiveKind::kAllReduce, "ring", 3, 12 * kOneSegment, 1, apart), 4 * ring_s, 1e-9);
}

TEST(Boards, LentMessagesAreCopiedOnce) {
  const BoardCut lends{256 * 1024, 1, 2 << 20};
  constexpr auto kKind = CollectiveKind::kAllToAll;
  const auto saved = [&](int64_t bytes) {
    return on_boards_s(kKind, "direct", 2, bytes) - on_boards_s(kKind, "direct", 2, bytes, 1, lends);
  };
  EXPECT_EQ(saved(2 << 20), 0) << "blocks of 1 MiB";
  // Half of the bytes go to the other rank: the board's copy is saved, and the turns of 15 more segments.
  EXPECT_NEAR(saved(8 << 20), (8 << 20) * kTouch + 15 * kRound, 1e-9);
}

TEST(Boards, BytesBeyondTheCacheAreFetched) {
  constexpr auto kKind = CollectiveKind::kAllReduce;
  const auto per_byte = [&](int64_t bytes) {
    return on_boards_s(kKind, "ring", 2, bytes) / static_cast<double>(bytes);
  };
  const double turns = kRound / (256 * 1024);  // per byte: a segment has two chunks
  EXPECT_LE(per_byte(2 << 20), 4.5 * kTouch + turns) << "4 MiB in all";
  EXPECT_GT(per_byte(16 << 20), 4.5 * kTouch + 0.6 * kFetch);
  EXPECT_LT(per_byte(256 << 20), 4.5 * kTouch + kFetch + turns);
  // A result of its own is fetched, too.
  constexpr int64_t kLarge = int64_t{1} << 30;
  const double scatter_s = on_boards_s(CollectiveKind::kReduceScatter, "direct", 2, kLarge);
  EXPECT_NEAR(scatter_s / kLarge, 2.5 * kTouch + 1.5 * kFetch, 0.05 * (2.5 * kTouch + 1.5 * kFetch));
}

TEST(Boards, RanksThatShareCoresTakeTurns) {
  constexpr auto kKind = CollectiveKind::kAllReduce;
  for (const int64_t bytes : {kOneSegment, int64_t{64} << 20}) {
    const double own_s = on_boards_s(kKind, "direct", 4, bytes);
    EXPECT_GT(on_boards_s(kKind, "direct", 4, bytes, 2), 2 * own_s) << bytes;
    EXPECT_GT(on_boards_s(kKind, "direct", 4, bytes, 4), 2 * on_boards_s(kKind, "direct", 4, bytes, 2)) << bytes;
  }
  // A root that copies alone has a core of its own.
  const double alone_s = on_boards_s(CollectiveKind::kBroadcast, "direct", 4, kOneSegment, 2) - 4 * kRound;
  EXPECT_NEAR(alone_s, 1.35 * (2 + 3) * kOneSegment * kTouch, 1e-12) << "three readers on two cores";
}

TEST(Boards, TimesGrowWithTheBytes) {
  for (const char* algorithm : {"ring", "direct", "gather_all", "doubling"}) {
    for (const int ranks : {1, 2, 3, 8}) {
      const Schedule schedule = schedule_for(CollectiveKind::kAllReduce, algorithm, ranks);
      double last_s = predict_on_boards_s(schedule, 0, kCut, board_rates());
      EXPECT_GE(last_s, ranks > 1 ? kRound : 0);
      for (int64_t bytes = 64; bytes <= 1 << 28; bytes *= 2) {
        const double now_s = predict_on_boards_s(schedule, bytes, kCut, board_rates());
        if (ranks > 1) EXPECT_GT(now_s, last_s) << algorithm << " " << ranks << " " << bytes;
        last_s = now_s;
      }
    }
  }
}

}  // namespace
}  // namespace braid
