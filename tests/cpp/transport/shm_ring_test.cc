// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "transport/contract.h"
#include "transport/shm/ring.h"

namespace braid::shm {
namespace {

using Outcome = RingWriter::Outcome;
using testing::pattern;

struct RingMemory {
  explicit RingMemory(size_t bytes) : data(bytes) {}

  Ring ring() { return {&control, data.data(), data.size()}; }

  RingControl control{};
  std::vector<std::byte> data;
};

Frame frame_of(size_t payload_bytes, uint64_t index) {
  Frame frame;
  frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
  frame.tag = {3, index};
  return frame;
}

// Takes the next record and checks it whole.
void expect_record(RingReader& reader, uint64_t index, const std::vector<std::byte>& payload) {
  ASSERT_FALSE(reader.empty());
  Frame frame;
  ASSERT_TRUE(reader.front(&frame));
  ASSERT_EQ(frame.tag, (Tag{3, index}));
  ASSERT_EQ(frame.payload_bytes, payload.size());
  std::vector<std::byte> got(payload.size());
  reader.copy_payload(got);
  ASSERT_EQ(got, payload);
  reader.pop(frame);
}

TEST(ShmRingTest, RecordsWrapAtEveryPosition) {
  constexpr size_t kBytes = 4096;
  for (size_t lines = 0; lines < kBytes / kLineBytes; ++lines) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{9}, size_t{200}, size_t{960}}) {
      RingMemory memory(kBytes);
      RingWriter writer(memory.ring());
      RingReader reader(memory.ring());
      for (size_t i = 0; i < lines; ++i) {
        ASSERT_EQ(writer.write(frame_of(0, i), {}, 0), Outcome::kWritten);
        ASSERT_TRUE(reader.refresh());
        expect_record(reader, i, {});
      }
      const auto payload = pattern(size, lines);
      ASSERT_EQ(writer.write(frame_of(size, lines), payload, 0), Outcome::kWritten);
      ASSERT_TRUE(reader.refresh());
      expect_record(reader, lines, payload);
      EXPECT_TRUE(reader.empty());
    }
  }
}

TEST(ShmRingTest, RandomRecordsKeepOrderAndContents) {
  RingMemory memory(8192);
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  std::mt19937 random(7);
  std::deque<std::pair<uint64_t, std::vector<std::byte>>> inside;
  uint64_t next = 0;
  for (int round = 0; round < 50'000; ++round) {
    if (random() % 2 == 0) {
      auto payload = pattern(random() % (writer.payload_limit() + 1), next);
      if (writer.write(frame_of(payload.size(), next), payload, 0) == Outcome::kWritten) {
        inside.emplace_back(next++, std::move(payload));
      } else {
        ASSERT_GE(inside.size(), 4u) << "four records of any size fit";
      }
    } else if (!inside.empty()) {
      ASSERT_TRUE(reader.refresh());
      expect_record(reader, inside.front().first, inside.front().second);
      inside.pop_front();
    }
  }
  EXPECT_GT(next, 10'000u);
}

TEST(ShmRingTest, AFullRingAsksForTheDoorbell) {
  RingMemory memory(4096);
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  uint64_t count = 0;
  while (writer.write(frame_of(0, count), {}, 1024) == Outcome::kWritten) ++count;
  EXPECT_EQ(count, (4096u - 1024u) / 64u) << "the reserve stays free";
  EXPECT_EQ(writer.write(frame_of(0, count), {}, 0), Outcome::kWritten) << "and can be used";

  ASSERT_TRUE(reader.refresh());
  expect_record(reader, 0, {});
  EXPECT_TRUE(reader.settle());
  EXPECT_FALSE(reader.settle()) << "asked once, rung once";
  EXPECT_EQ(writer.write(frame_of(0, ++count), {}, 1024), Outcome::kFull);

  // A draining reader lets the writer know long before it is through.
  Frame frame;
  bool due = false;
  size_t popped = 0;
  while (!due) {
    ASSERT_FALSE(reader.empty());
    ASSERT_TRUE(reader.front(&frame));
    due = reader.pop(frame);
    ++popped;
  }
  EXPECT_LE(popped, 4096u / 4 / 64);
}

TEST(ShmRingTest, CountsThatCannotBeAreSeen) {
  for (const uint64_t nonsense : {uint64_t{64}, uint64_t{4096}, ~uint64_t{0}, uint64_t{1}}) {
    RingMemory memory(4096);
    RingWriter writer(memory.ring());
    const auto payload = pattern(900, 1);
    while (writer.write(frame_of(900, 0), payload, 0) == Outcome::kWritten) {
    }
    memory.control.read = 4096 + nonsense;
    EXPECT_EQ(writer.write(frame_of(900, 0), payload, 0), Outcome::kBroken) << nonsense;
  }
  for (const uint64_t nonsense : {uint64_t{4160}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{63}}) {
    RingMemory memory(4096);
    RingReader reader(memory.ring());
    memory.control.written = nonsense;
    EXPECT_FALSE(reader.refresh()) << nonsense;
  }
}

TEST(ShmRingTest, RecordsLargerThanWhatWasWrittenAreSeen) {
  for (const size_t claimed : {size_t{9}, size_t{4096}, size_t{0xffff'ffff}}) {
    RingMemory memory(4096);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring());
    ASSERT_EQ(writer.write(frame_of(claimed, 0), {}, 0), Outcome::kWritten);
    ASSERT_TRUE(reader.refresh());
    Frame frame;
    EXPECT_FALSE(reader.front(&frame)) << claimed;
  }
}

TEST(ShmRingTest, HangingUpIsSeenAfterTheLastRecord) {
  RingMemory memory(4096);
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  ASSERT_EQ(writer.write(frame_of(0, 0), {}, 0), Outcome::kWritten);
  EXPECT_FALSE(reader.hung_up());
  writer.hang_up();
  EXPECT_TRUE(reader.hung_up());
  ASSERT_TRUE(reader.refresh());
  expect_record(reader, 0, {});
}

TEST(ShmRingTest, TwoThreadsAgreeOnEveryByte) {
  constexpr uint64_t kRecords = 20'000;
  RingMemory memory(4096);
  const auto source = pattern(960, 11);
  std::atomic<bool> given_up{false};
  std::thread other([&] {
    RingWriter writer(memory.ring());
    std::mt19937 random(1);
    for (uint64_t i = 0; i < kRecords; ++i) {
      const auto payload = ConstBytes(source).first(random() % (source.size() + 1));
      while (!given_up && writer.write(frame_of(payload.size(), i), payload, 0) != Outcome::kWritten) {
        std::this_thread::yield();
      }
    }
  });
  RingReader reader(memory.ring());
  std::mt19937 random(1);
  for (uint64_t i = 0; i < kRecords && !::testing::Test::HasFatalFailure();) {
    ASSERT_TRUE(reader.refresh());
    if (reader.empty()) std::this_thread::yield();
    for (; !reader.empty(); ++i) {
      const size_t size = random() % (source.size() + 1);
      expect_record(reader, i, {source.begin(), source.begin() + static_cast<std::ptrdiff_t>(size)});
      if (::testing::Test::HasFatalFailure()) break;
    }
  }
  given_up = true;
  other.join();
}

}  // namespace
}  // namespace braid::shm
