// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

namespace braid {
namespace {

TEST(Pool, BlocksAreLargeEnoughAlignedAndApart) {
  Pool pool(0);
  std::vector<PoolBlock> blocks;
  for (const size_t bytes : {0, 1, 63, 64, 65, 1000, 4096, 4097}) {
    blocks.push_back(pool.take(bytes));
    ASSERT_GE(blocks.back().size(), bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data()) % 64, 0u);
    std::memset(blocks.back().data(), static_cast<int>(blocks.size()), blocks.back().size());
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const std::byte b : std::span(blocks[i].data(), blocks[i].size())) ASSERT_EQ(b, std::byte(i + 1));
  }
}

TEST(Pool, AReturnedBlockIsGivenOutAgain) {
  Pool pool(1 << 20);
  std::byte* first = nullptr;
  {
    const PoolBlock block = pool.take(5000);
    first = block.data();
    EXPECT_EQ(pool.kept_bytes(), 0u);
  }
  EXPECT_EQ(pool.kept_bytes(), 8192u);
  const PoolBlock other_size = pool.take(100);
  EXPECT_NE(other_size.data(), first);
  const PoolBlock again = pool.take(8000);  // the same power of two
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(Pool, NeverKeepsMoreThanItMay) {
  Pool pool(10'000);
  {
    std::vector<PoolBlock> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(pool.take(4096));
  }
  EXPECT_EQ(pool.kept_bytes(), 8192u);
  {
    const PoolBlock too_large = pool.take(16'384);
  }
  EXPECT_EQ(pool.kept_bytes(), 8192u);
}

TEST(Pool, SizesThatNobodyAsksForMakeRoom) {
  Pool pool(16'384);
  {
    const PoolBlock once = pool.take(16'384);
  }
  EXPECT_EQ(pool.kept_bytes(), 16'384u);
  std::byte* first = nullptr;
  {
    const PoolBlock other = pool.take(4096);
    first = other.data();
  }
  EXPECT_EQ(pool.kept_bytes(), 4096u);
  EXPECT_EQ(pool.take(4096).data(), first);
}

TEST(Pool, AMovedBlockIsReturnedOnce) {
  Pool pool(1 << 20);
  {
    PoolBlock a = pool.take(64);
    std::byte* const data = a.data();
    PoolBlock b = std::move(a);
    EXPECT_EQ(b.data(), data);
    PoolBlock c = pool.take(128);
    c = std::move(b);
    EXPECT_EQ(c.data(), data);
  }
  EXPECT_EQ(pool.kept_bytes(), 64u + 128u);
}

TEST(Pool, ThreadsNeverShareABlock) {
  Pool pool(1 << 16);
  std::vector<std::thread> threads;
  std::atomic<int> mixed_up{0};
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const PoolBlock block = pool.take(size_t{64} << (i % 4));
        std::memset(block.data(), t, block.size());
        std::this_thread::yield();
        for (const std::byte b : std::span(block.data(), block.size())) mixed_up += b != std::byte(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixed_up, 0);
  EXPECT_LE(pool.kept_bytes(), size_t{1} << 16);
}

}  // namespace
}  // namespace braid
