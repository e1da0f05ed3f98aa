// SPDX-License-Identifier: Apache-2.0
#include "parameters/shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

// Elements 100 to 107 of a vector, all 1.
Shard shard_of(const std::string& rule, bool divides_by_staleness = false) {
  Shard shard(100, 8, {rule_from_text(rule).value(), divides_by_staleness}, false);
  EXPECT_TRUE(shard.install(std::vector<float>(8, 1.0f).data(), 0).ok());
  return shard;
}

TEST(Shard, EachRangeHasItsNumbers) {
  Shard shard = shard_of("sgd");
  const std::vector<float> gradient(8, 1.0f);
  const Table table{{50, with_rate(9)}, {103, with_rate(0.5)}, {200, with_rate(0.25)}};
  ASSERT_TRUE(shard.apply({0, gradient.data(), nullptr, table, 1, 0}).ok());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(shard.values()[i], i < 3 ? 0.5f : 0.75f) << i;
  EXPECT_EQ(shard.version(), 1u);
}

TEST(Shard, ATableThatDoesNotCoverItChangesNothing) {
  Shard shard = shard_of("sgd");
  const std::vector<float> gradient(8, 1.0f);
  const Table short_one{{107, with_rate(1)}};
  const Table disordered{{108, with_rate(1)}, {104, with_rate(1)}};
  const Table wrong{{104, with_rate(1)}, {108, with_rate(-1)}};
  for (const Table& table : {short_one, disordered, wrong, Table{}}) {
    EXPECT_EQ(shard.apply({0, gradient.data(), nullptr, table, 1, 0}).status().code(), Code::kInvalidArgument);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(shard.values()[i], 1.0f);
  }
  EXPECT_EQ(shard.version(), 0u);
}

TEST(Shard, CountsStaleness) {
  Shard shard = shard_of("sgd");
  const std::vector<float> gradient(8, 1.0f);
  const Table table{{108, with_rate(0.125)}};
  EXPECT_EQ(shard.apply({0, gradient.data(), nullptr, table, 1, 0}).value(), 0u);
  EXPECT_EQ(shard.apply({1, gradient.data(), nullptr, table, 1, 0}).value(), 1u);
  EXPECT_EQ(shard.apply({2, gradient.data(), nullptr, table, 1, 2}).value(), 0u);
  EXPECT_EQ(shard.apply({2, gradient.data(), nullptr, table, 1, 9}).value(), 0u)
      << "a base from the future is not stale";
  EXPECT_EQ(shard.staleness()[0], 3u);
  EXPECT_EQ(shard.staleness()[1], 1u);
}

TEST(Shard, DividesTheRateByStaleness) {
  Shard shard = shard_of("sgd", true);
  const std::vector<float> gradient(8, 1.0f);
  const Table table{{108, with_rate(0.5f)}};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(shard.apply({0, gradient.data(), nullptr, table, 0, 0}).ok());
  ASSERT_TRUE(shard.apply({0, gradient.data(), nullptr, table, 1, 0}).ok());
  EXPECT_EQ(shard.values()[0], 1.0f - 0.5f / 4);
}

TEST(Shard, RestoresWhatASnapshotHas) {
  const std::vector<float> gradient{1, 2, 3, 4, 5, 6, 7, 8};
  RuleNumbers numbers = with_rate(0.125);
  numbers.momentum = 0.5;
  const Table table{{108, numbers}};
  Shard shard = shard_of("sgd:momentum");
  ASSERT_TRUE(shard.apply({0, gradient.data(), nullptr, table, 1, 0}).ok());
  std::vector<float> saved(16);
  shard.snapshot(saved.data());
  Shard other(100, 8, {rule_from_text("sgd:momentum").value(), false}, false);
  EXPECT_TRUE(other.restore(saved.data(), shard.steps(), other.version() + 1).ok());
  for (Shard* one : {&shard, &other}) ASSERT_TRUE(one->apply({0, gradient.data(), nullptr, table, 1, 0}).ok());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(shard.values()[i], other.values()[i]);
}

TEST(Shard, CompensatesWithTheValuesThatTheWorkerHad) {
  Shard shard = shard_of("sgd:compensates");
  const std::vector<float> gradient(8, 1.0f);
  RuleNumbers numbers = with_rate(0.5f);
  numbers.lambda = 2;
  const Table table{{108, numbers}};
  std::vector<float> got(8);
  shard.read(1, got.data());                                                     // worker 1 has 1
  ASSERT_TRUE(shard.apply({0, gradient.data(), got.data(), table, 1, 0}).ok());  // others move it to 0.5
  ASSERT_TRUE(shard.apply({1, gradient.data(), nullptr, table, 1, 0}).ok());
  // g + lambda g g (w - backup) = 1 + 2 (0.5 - 1) = 0
  EXPECT_EQ(shard.values()[0], 0.5f);
}

TEST(Shard, OfNoElementsWorks) {
  Shard shard(100, 0, {rule_from_text("adam").value(), false}, false);
  const float none = 0;
  EXPECT_TRUE(shard.install(&none, 0).ok());
  const Table table{{100, with_rate(0.125)}};
  EXPECT_TRUE(shard.apply({0, &none, nullptr, table, 1, 0}).ok());
  std::vector<float> saved(1);
  shard.snapshot(saved.data());
  EXPECT_EQ(shard.version(), 1u);
}

TEST(MappedShard, ThatIsAnotherIsRefused) {
  const ShardRule rule{rule_from_text("add").value(), false};
  const auto made = MappedShard::create(0, 100, rule);
  ASSERT_TRUE(made.ok());
  const std::string handle = made.value()->handle();
  EXPECT_LT(handle.size(), kMapTextBytes);
  EXPECT_TRUE(MappedShard::attach(handle, 0, 100, rule).ok());
  EXPECT_EQ(MappedShard::attach(handle, 0, 101, rule).status().code(), Code::kMismatch);
  EXPECT_EQ(MappedShard::attach(handle, 0, 1 << 20, rule).status().code(), Code::kMismatch);
  EXPECT_FALSE(MappedShard::attach("", 0, 100, rule).ok());
  EXPECT_FALSE(MappedShard::attach("1:2:3:4", 0, 100, rule).ok());
}

}  // namespace
}  // namespace braid::testing
