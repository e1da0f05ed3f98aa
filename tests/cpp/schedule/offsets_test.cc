// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "schedule/schedule.h"

namespace braid {
namespace {

std::vector<int64_t> offsets(int chunks, std::vector<uint64_t> shares, int64_t count) {
  Schedule schedule;
  schedule.chunks = chunks;
  schedule.shares = std::move(shares);
  return chunk_offsets(schedule, count);
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(ChunkOffsets, CoverEverythingInOrder) {
  std::vector<std::vector<uint64_t>> all_shares = {
      {}, {1, 1, 1, 1, 1}, {0, 0, 7, 0, 0}, {9, 0, 1, 3, 1000003}, {uint64_t{1} << 62, 1, 1, 1, 1}};
  for (const auto& shares : all_shares) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{4}, int64_t{5}, int64_t{1000003}, kMost}) {
      std::vector<int64_t> cut = offsets(5, shares, count);
      ASSERT_EQ(cut.size(), 6u);
      EXPECT_EQ(cut.front(), 0);
      EXPECT_EQ(cut.back(), count);
      EXPECT_TRUE(std::is_sorted(cut.begin(), cut.end()));
    }
  }
}

TEST(ChunkOffsets, EqualSharesDifferByAtMostOne) {
  for (int chunks : {1, 2, 3, 7, 64}) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{1000003}, kMost}) {
      std::vector<int64_t> cut = offsets(chunks, {}, count);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        int64_t size = cut[chunk + 1] - cut[chunk];
        EXPECT_TRUE(size == count / chunks || size == count / chunks + 1) << chunks << " " << count;
      }
      EXPECT_EQ(cut, offsets(chunks, std::vector<uint64_t>(chunks, 12345), count));
    }
  }
}

TEST(ChunkOffsets, FollowTheShares) {
  EXPECT_EQ(offsets(3, {1, 0, 3}, 100), (std::vector<int64_t>{0, 25, 25, 100}));
  EXPECT_EQ(offsets(3, {2, 1, 1}, 7), (std::vector<int64_t>{0, 3, 5, 7}));
}

TEST(ChunkOffsets, EveryChunkIsWithinOneElementOfItsShare) {
  std::vector<uint64_t> shares = {3, 1, 4, 1, 5, 9, 2, 6};
  for (int64_t count = 0; count < 200; ++count) {
    std::vector<int64_t> cut = offsets(8, shares, count);
    for (size_t chunk = 0; chunk < 8; ++chunk) {
      double exact = static_cast<double>(shares[chunk]) * static_cast<double>(count) / 31;
      EXPECT_LT(std::abs(static_cast<double>(cut[chunk + 1] - cut[chunk]) - exact), 1.0);
    }
  }
}

}  // namespace
}  // namespace braid
