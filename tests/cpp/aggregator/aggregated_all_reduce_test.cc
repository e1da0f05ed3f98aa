// SPDX-License-Identifier: Apache-2.0
// What the first rank tells an aggregator; tests/cpp/aggregator has what they then do.
#include "aggregator/aggregated_all_reduce.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace braid::testing {
namespace {

constexpr AggregationOrder kOrder{static_cast<uint8_t>(CollectiveKind::kAllReduce),
                                  static_cast<uint8_t>(DType::kBFloat16), static_cast<uint8_t>(ReduceOp::kMax),
                                  (uint64_t{1} << 40) + 2, 30'000};

TEST(AggregationOrder, RoundTrips) {
  const auto read = order_from_bytes(to_bytes(kOrder));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, kOrder.kind);
  EXPECT_EQ(read->dtype, kOrder.dtype);
  EXPECT_EQ(read->op, kOrder.op);
  EXPECT_EQ(read->bytes, kOrder.bytes);
  EXPECT_EQ(read->timeout_ms, kOrder.timeout_ms);
}

TEST(AggregationOrder, OfWhatDoesNotExistIsNone) {
  const auto is_read = [](const auto& change) {
    AggregationOrder order = kOrder;
    change(order);
    return order_from_bytes(to_bytes(order)).has_value();
  };
  EXPECT_TRUE(is_read([](AggregationOrder& order) { order.kind = kCollectiveKindCount - 1; }));
  EXPECT_TRUE(is_read([](AggregationOrder& order) { order.dtype = kDTypeCount - 1; }));
  EXPECT_TRUE(is_read([](AggregationOrder& order) { order.op = kReduceOpCount - 1; }));
  EXPECT_TRUE(is_read([](AggregationOrder& order) { order.timeout_ms = 0; }));
  EXPECT_FALSE(is_read([](AggregationOrder& order) { order.kind = kCollectiveKindCount; }));
  EXPECT_FALSE(is_read([](AggregationOrder& order) { order.dtype = kDTypeCount; }));
  EXPECT_FALSE(is_read([](AggregationOrder& order) { order.op = kReduceOpCount; }));
  EXPECT_FALSE(is_read([](AggregationOrder& order) { order.timeout_ms = -1; }));
  std::array<std::byte, kOrderBytes> garbage;
  garbage.fill(std::byte{0xff});
  EXPECT_FALSE(order_from_bytes(garbage).has_value());
}

}  // namespace
}  // namespace braid::testing
