// SPDX-License-Identifier: Apache-2.0
#include "executor/layout.h"

#include <gtest/gtest.h>

#include <string>

#include "schedule/segments.h"

namespace braid {
namespace {

Schedule schedule_of(CollectiveKind kind, int ranks, int chunks, std::vector<uint64_t> shares = {}) {
  Schedule schedule;
  schedule.collective = {kind, ranks, 0};
  schedule.chunks = chunks;
  schedule.shares = std::move(shares);
  return schedule;
}

TEST(Layout, SegmentsAndChunksCoverAVectorOnceAndInWholeElements) {
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const size_t count : {1, 2, 5, 7, 64, 1009, 4096, 40'009}) {
      for (const auto& shares : std::vector<std::vector<uint64_t>>{{}, {1, 5, 0, 2, 1}}) {
        const Schedule schedule = schedule_of(CollectiveKind::kAllReduce, 3, 5, shares);
        std::vector<std::byte> memory(count * size_of(dtype));
        const Operands operands{dtype, ReduceOp::kSum, {memory}, {memory}};
        const Layout layout(schedule, operands, 256);
        ASSERT_GT(layout.segments(), 0);
        std::vector<std::byte> scratch(layout.scratch_bytes());
        const std::byte* next = memory.data();
        for (int64_t segment = 0; segment < layout.segments(); ++segment) {
          const std::byte* next_scratch = scratch.data();
          for (int32_t k = 0; k < 5; ++k) {
            const Bytes chunk = layout.write({Buffer::kOutput, k, 1}, segment, scratch.data());
            ASSERT_EQ(chunk.data(), next) << count << " elements, segment " << segment << ", chunk " << k;
            ASSERT_EQ(chunk.size() % size_of(dtype), 0u);
            next += chunk.size();
            const Bytes mirror = layout.write({Buffer::kScratch, k, 1}, segment, scratch.data());
            ASSERT_EQ(mirror.data(), next_scratch);
            ASSERT_EQ(mirror.size(), chunk.size());
            next_scratch += mirror.size();
          }
          ASSERT_LE(static_cast<size_t>(next_scratch - scratch.data()), scratch.size());
        }
        ASSERT_EQ(next, memory.data() + memory.size());
      }
    }
  }
}

TEST(Layout, ARunOfChunksIsTheirUnion) {
  const Schedule schedule = schedule_of(CollectiveKind::kAllReduce, 4, 8);
  std::vector<std::byte> memory(30'000);
  const Operands operands{DType::kFloat32, ReduceOp::kSum, {memory}, {memory}};
  const Layout layout(schedule, operands, 1024);
  ASSERT_GT(layout.segments(), 1);
  for (int64_t segment = 0; segment < layout.segments(); ++segment) {
    const ConstBytes run = layout.read({Buffer::kInput, 2, 3}, segment, nullptr);
    const ConstBytes first = layout.read({Buffer::kInput, 2, 1}, segment, nullptr);
    const ConstBytes last = layout.read({Buffer::kInput, 4, 1}, segment, nullptr);
    EXPECT_EQ(run.data(), first.data());
    EXPECT_EQ(run.data() + run.size(), last.data() + last.size());
  }
}

TEST(Layout, CutsAsTheTunerCounts) {
  for (const size_t size : {1, 1000, 4096, 100'000}) {
    std::vector<std::byte> bytes(size);
    const Schedule vector = schedule_of(CollectiveKind::kAllReduce, 3, 3);
    const Operands whole{DType::kUInt8, ReduceOp::kSum, {bytes}, {bytes}};
    EXPECT_EQ(Layout(vector, whole, 256).segments(), segments_of(vector, static_cast<int64_t>(size), 256));
    const Schedule blocks = schedule_of(CollectiveKind::kAllGather, 3, 3);
    const Operands three{DType::kUInt8, ReduceOp::kSum, {bytes}, {bytes, bytes, bytes}};
    EXPECT_EQ(Layout(blocks, three, 256).segments(), segments_of(blocks, static_cast<int64_t>(3 * size), 256));
  }
}

TEST(Layout, NothingHasNoSegments) {
  const Schedule vector = schedule_of(CollectiveKind::kAllReduce, 2, 2);
  const Operands empty{DType::kFloat32, ReduceOp::kSum, {ConstBytes()}, {Bytes()}};
  EXPECT_EQ(Layout(vector, empty, 1024).segments(), 0);
  const Schedule blocks = schedule_of(CollectiveKind::kAllGather, 2, 2);
  const Operands no_blocks{DType::kFloat32, ReduceOp::kSum, {ConstBytes()}, {Bytes(), Bytes()}};
  EXPECT_EQ(Layout(blocks, no_blocks, 1024).segments(), 0);
}

TEST(Layout, BlocksOfUnequalSizeEndInTheirOwnTime) {
  const Schedule schedule = schedule_of(CollectiveKind::kAllGather, 3, 3);
  std::vector<std::byte> a(1000), b(0), c(64);
  const Operands operands{DType::kUInt8, ReduceOp::kSum, {c}, {a, b, c}};
  const Layout layout(schedule, operands, 256);
  EXPECT_EQ(layout.segments(), 4);
  std::vector<std::byte> scratch(layout.scratch_bytes());
  size_t seen[3] = {};
  for (int64_t segment = 0; segment < layout.segments(); ++segment) {
    for (int32_t k = 0; k < 3; ++k) {
      const Bytes part = layout.write({Buffer::kOutput, k, 1}, segment, scratch.data());
      if (!part.empty()) {
        EXPECT_EQ(part.data(), operands.outputs[k].data() + seen[k]);
      }
      seen[k] += part.size();
      const Bytes mirror = layout.write({Buffer::kScratch, k, 1}, segment, scratch.data());
      EXPECT_EQ(mirror.size(), part.size());
      EXPECT_LE(mirror.data() + mirror.size(), scratch.data() + scratch.size());
    }
  }
  EXPECT_EQ(seen[0], a.size());
  EXPECT_EQ(seen[1], 0u);
  EXPECT_EQ(seen[2], c.size());
}

// Sender and receiver of one block may count segments differently, but must cut that block alike.
TEST(Layout, RanksWithOtherBlocksCutASharedBlockAlike) {
  const Schedule schedule = schedule_of(CollectiveKind::kAllToAll, 2, 2);
  for (const size_t shared : {1, 100, 256, 257, 5000}) {
    std::vector<std::byte> block(shared), small(shared), large(100'000);
    const Operands sender{DType::kUInt8, ReduceOp::kSum, {small, block}, {small, small}};
    const Operands receiver{DType::kUInt8, ReduceOp::kSum, {large, large}, {block, large}};
    const Layout out(schedule, sender, 256);
    const Layout in(schedule, receiver, 256);
    for (int64_t segment = 0; segment < in.segments(); ++segment) {
      const size_t sent = segment < out.segments() ? out.read({Buffer::kInput, 1, 1}, segment, nullptr).size() : 0;
      EXPECT_EQ(in.write({Buffer::kOutput, 0, 1}, segment, nullptr).size(), sent)
          << shared << " bytes, segment " << segment;
    }
  }
}

}  // namespace
}  // namespace braid
