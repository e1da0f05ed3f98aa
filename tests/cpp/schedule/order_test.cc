// SPDX-License-Identifier: Apache-2.0
#include "schedule/order.h"

#include <gtest/gtest.h>

#include "schedule/text.h"

namespace braid {
namespace {

Result<Order> order_of_text(const std::string& text) {
  Result<Schedule> schedule = schedule_from_text(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return order_of(schedule.value());
}

TEST(Order, NumbersMessagesPerPairInOrderOfRoundsStepsAndSources) {
  Result<Order> order = order_of_text(
      "all_reduce x ranks=2 chunks=1\n"
      "r0\n  0: send i0 -> r1\n  1: send i0 -> r1; send i0 -> r1\n"
      "r1\n  0: recv t0 <- r0\n  1: reduce o0 = r0 + i0 + r0\n");
  ASSERT_TRUE(order.ok()) << order.status().message();
  const auto& messages = order.value().messages;
  ASSERT_EQ(messages.size(), 3u);
  for (int index = 0; index < 3; ++index) EXPECT_EQ(messages[index].number, index);
  EXPECT_EQ(messages[0].to.source, -1);
  EXPECT_EQ(messages[1].to.source, 0);
  EXPECT_EQ(messages[2].to.source, 2);
  EXPECT_EQ(messages[2].from.step, 1);
}

TEST(Order, HoldsEveryMessageAndEveryRoundOnceInAPossibleOrder) {
  Result<Order> order = order_of_text(
      "broadcast x ranks=3 root=0 chunks=1\n"
      "r0\n  0: copy o0 = i0\n  1: send i0 -> r1\n"
      "r1\n  0: recv o0 <- r0\n  1: send o0 -> r2\n"
      "r2\n  0: recv o0 <- r1\n");
  ASSERT_TRUE(order.ok());
  std::vector<int> position(3, 0);
  std::vector<bool> moved(2, false);
  for (const Event& event : order.value().events) {
    if (event.message < 0) {
      EXPECT_EQ(position[event.node]++, event.round);
      continue;
    }
    const Message& message = order.value().messages[event.message];
    EXPECT_EQ(position[message.from.node], message.from.round);
    EXPECT_EQ(position[message.to.node], message.to.round);
    EXPECT_FALSE(moved[event.message]);
    moved[event.message] = true;
  }
  EXPECT_EQ(position, (std::vector<int>{2, 2, 1}));
  EXPECT_EQ(moved, (std::vector<bool>{true, true}));
}

}  // namespace
}  // namespace braid
