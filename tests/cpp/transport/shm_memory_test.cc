// SPDX-License-Identifier: Apache-2.0
// A machine that has no memory left for what is shared: errors, where a touch would have been a SIGBUS.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "memory/reserve.h"
#include "transport/shm/local_boards.h"
#include "transport/shm_side.h"

namespace braid::testing {
namespace {

bool is_full = false;
int take_unless_full(void*, size_t) { return is_full ? ENOMEM : 0; }

class NoMemoryTest : public ::testing::Test {
 protected:
  NoMemoryTest() { reserve_by(take_unless_full); }
  ~NoMemoryTest() override {
    reserve_by(nullptr);
    is_full = false;
  }
};

TEST_F(NoMemoryTest, NoGroupIsMade) {
  const auto bell = ShmDoorbell::create();
  ASSERT_TRUE(bell.ok());
  const auto watch = make_death_watch();
  is_full = true;
  const Status refused = ShmGroup::create(0, 2, *bell.value(), *watch, {}).status();
  EXPECT_EQ(refused.code(), Code::kSystem);
  EXPECT_NE(refused.message().find("no memory left"), std::string::npos) << refused.message();
}

TEST_F(NoMemoryTest, AMessageThroughARingFailsTheGroup) {
  ShmSide first(0, 2), second(1, 2);
  ASSERT_TRUE(first.group->connect(1, second.group->endpoint()).ok());
  ASSERT_TRUE(second.group->connect(0, first.group->endpoint()).ok());
  first.attach(1, false);
  second.attach(0, false);
  is_full = true;
  const std::vector<std::byte> bytes(1000);
  const Status sent = first.send(1, {kPointToPoint, 0}, bytes);
  EXPECT_EQ(sent.code(), Code::kSystem);
  EXPECT_NE(sent.message().find("no memory left"), std::string::npos) << sent.message();
  EXPECT_NE(sent.message().find("a message to rank 1"), std::string::npos) << sent.message();
}

TEST_F(NoMemoryTest, AMessageOnABounceBufferIsRefusedWithAReason) {
  shm::LocalBoards boards(2, size_t{1} << 20);
  boards[0].begin_round();
  const std::vector<std::byte> bytes(100'000);
  ASSERT_TRUE(boards[0].bounce(bytes));
  EXPECT_TRUE(boards[0].refusal().ok());
  is_full = true;
  EXPECT_FALSE(boards[0].bounce(bytes));
  EXPECT_EQ(boards[0].refusal().code(), Code::kSystem);
}

}  // namespace
}  // namespace braid::testing
