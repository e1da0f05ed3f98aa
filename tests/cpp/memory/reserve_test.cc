// SPDX-License-Identifier: Apache-2.0
#include "memory/reserve.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "memory/segment.h"

namespace braid {
namespace {

constexpr size_t kBytes = size_t{4} << 20;

size_t given_out_pages(const Segment& segment) {
  std::vector<unsigned char> resident(segment.size() / 4096);
  EXPECT_EQ(::mincore(segment.data(), segment.size(), resident.data()), 0);
  size_t count = 0;
  for (const unsigned char page : resident) count += page & 1;
  return count;
}

// A machine that has so many bytes of shared memory left.
size_t left_bytes = 0;
int take_from_left(void*, size_t bytes) {
  if (bytes > left_bytes) return EFAULT;
  left_bytes -= bytes;
  return 0;
}

class FullMachine : public ::testing::Test {
 protected:
  explicit FullMachine(size_t left = 0) {
    left_bytes = left;
    reserve_by(take_from_left);
  }
  ~FullMachine() override { reserve_by(nullptr); }
};

TEST(ReserveTest, TakesThePagesAndKeepsWhatTheyHold) {
  const auto segment = Segment::create("test", kBytes);
  ASSERT_TRUE(segment.ok());
  std::byte* begin = segment.value().data();
  begin[5000] = std::byte{7};
  ASSERT_EQ(given_out_pages(segment.value()), 2u);
  ASSERT_TRUE(reserve(begin + 4100, 8192).ok());
  EXPECT_EQ(given_out_pages(segment.value()), 4u) << "the first page, and the three that hold those bytes";
  EXPECT_EQ(begin[5000], std::byte{7});
}

TEST(ReserveTest, APrefixGrowsWithWhatIsUsed) {
  const auto segment = Segment::create("test", kBytes);
  ASSERT_TRUE(segment.ok());
  ReservedPrefix prefix(segment.value().data(), kBytes);
  EXPECT_FALSE(prefix.holds(1));
  ASSERT_TRUE(prefix.grow_to(1).ok());
  EXPECT_TRUE(prefix.holds(4096));
  EXPECT_LE(given_out_pages(segment.value()), 16u);
  ASSERT_TRUE(prefix.grow_to(kBytes).ok());
  EXPECT_TRUE(prefix.holds(kBytes));
  EXPECT_FALSE(prefix.holds(kBytes + 1));
  EXPECT_EQ(given_out_pages(segment.value()), kBytes / 4096);
}

TEST_F(FullMachine, ASegmentIsAnErrorThatSaysWhatToDo) {
  const Status refused = Segment::create("test", kBytes).status();
  EXPECT_EQ(refused.code(), Code::kSystem);
  EXPECT_NE(refused.message().find("no memory left"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("BRAID_TRANSPORTS=tcp"), std::string::npos) << refused.message();
}

TEST_F(FullMachine, APrefixStaysAsItWas) {
  left_bytes = size_t{64} * 1024;
  std::vector<std::byte> memory(kBytes);
  ReservedPrefix prefix(memory.data(), kBytes);
  ASSERT_TRUE(prefix.grow_to(1000).ok());
  EXPECT_EQ(prefix.grow_to(kBytes).code(), Code::kSystem);
  EXPECT_TRUE(prefix.holds(1000));
  EXPECT_FALSE(prefix.holds(kBytes));
  left_bytes = kBytes + 4096;
  EXPECT_TRUE(prefix.grow_to(kBytes).ok()) << "it may be asked again";
}

}  // namespace
}  // namespace braid
