// SPDX-License-Identifier: Apache-2.0
// Operations that wait say for whom, in the log and to whoever asks from outside.
#include "group/stall.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "communicator/ranks.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::says;

std::mutex lines_mutex;
std::vector<std::string> lines;

// What is logged while this lives.
class Lines {
 public:
  Lines() {
    const std::lock_guard lock(lines_mutex);
    lines.clear();
    set_log_sink([](LogLevel level, const char* line) {
      const std::lock_guard inner(lines_mutex);
      if (level == LogLevel::kWarning) lines.emplace_back(line);
    });
  }
  ~Lines() { set_log_sink(nullptr); }
  // Those of a rank.
  static std::vector<std::string> of(Node rank) {
    const std::lock_guard lock(lines_mutex);
    std::vector<std::string> found;
    const std::string start = "rank " + std::to_string(rank);
    for (const std::string& line : lines) {
      if (line.starts_with(start + " ") || line.starts_with(start + ":")) found.push_back(line);
    }
    return found;
  }
};

std::string joined(const std::vector<std::string>& some) {
  std::string text;
  for (const std::string& line : some) text += line + "\n";
  return text;
}

class Stalls : public testing::EveryWire {
 protected:
  Options options() const {
    Options options = EveryWire::options();
    options.stall_notice = 400ms;
    return options;
  }
};

TEST_P(Stalls, NameTheRankThatHasNotBegun) {
  const Lines all;
  testing::on_all_ranks(3, options(), [](Communicator& group) {
    EXPECT_TRUE(testing::run(group, testing::barrier()).ok());
    std::vector<float> values(100, 1);
    if (group.rank() == 2) std::this_thread::sleep_for(3000ms);
    auto work = group.start(testing::all_reduce(values), group.rank() == 0);
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(work.value()->wait(kNoDeadline).ok());
    EXPECT_TRUE(work.value()->awaited().empty());
    const Waits waits = group.waits();
    EXPECT_TRUE(waits.now.empty());
    if (group.rank() == 2) return;
    EXPECT_GE(waits.notices, 2U);
    EXPECT_GT(waits.longest_s, 1.5);
  });
  for (const Node rank : {0, 1}) {
    const auto told = Lines::of(rank);
    ASSERT_GE(told.size(), 3U) << joined(told);
    ASSERT_LE(told.size(), 5U) << joined(told);
    EXPECT_NE(told[0].find(" in all_reduce #2 (sum, float32, 400 bytes"), std::string::npos) << told[0];
    EXPECT_NE(told[0].find("rank 2 on "), std::string::npos) << told[0];
    EXPECT_NE(told[0].find("(pid "), std::string::npos) << told[0];
    EXPECT_NE(told[0].find("has not begun it; its last operation was #1"), std::string::npos) << told[0];
    EXPECT_NE(told.back().find("has ended after "), std::string::npos) << told.back();
  }
  EXPECT_TRUE(Lines::of(2).empty()) << joined(Lines::of(2));
}

TEST_P(Stalls, AreSeenFromOutside) {
  const Lines all;
  std::atomic<bool> seen{false};
  testing::on_all_ranks(2, options(), [&](Communicator& group) {
    std::vector<float> values(100, 1);
    if (group.rank() == 1) {
      while (!seen) std::this_thread::sleep_for(5ms);
    }
    auto work = group.start(testing::all_reduce(values), false);
    ASSERT_TRUE(work.ok());
    if (group.rank() == 0) {
      const Deadline deadline = Clock::now() + 60s;
      while (group.waits().now.empty() && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
      const Waits waits = group.waits();
      EXPECT_EQ(work.value()->awaited(), std::vector<Node>{1});
      seen = true;
      ASSERT_EQ(waits.now.size(), 1U);
      EXPECT_EQ(waits.now[0].operation, work.value()->what());
      EXPECT_EQ(waits.now[0].ranks, std::vector<Node>{1});
      EXPECT_GE(waits.now[0].seconds, 1);
    }
    EXPECT_TRUE(work.value()->wait(kNoDeadline).ok());
  });
}

TEST_P(Stalls, SayWhatIsKnownOfAMessage) {
  const Lines all;
  testing::on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<float> values(100, 1);
    const Bytes bytes = std::as_writable_bytes(std::span(values));
    if (group.rank() == 1) {
      std::this_thread::sleep_for(2000ms);
      EXPECT_TRUE(testing::outcome(group.send(0, 5, bytes, 0ms)).ok());
    } else {
      EXPECT_TRUE(testing::outcome(group.recv(1, 5, bytes, 0ms)).ok());
    }
  });
  const auto told = Lines::of(0);
  ASSERT_GE(told.size(), 2U) << joined(told);
  EXPECT_NE(told[0].find("in recv from rank 1 #0 (tag 5, 400 bytes)"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find("): no message was announced"), std::string::npos) << told[0];
  EXPECT_NE(told.back().find("has ended after"), std::string::npos) << told.back();
}

TEST_P(Stalls, OfVeryManyAFewSpeak) {
  const Lines all;
  testing::on_all_ranks(2, options(), [](Communicator& group) {
    std::vector<std::byte> values(40);
    if (group.rank() == 1) std::this_thread::sleep_for(1200ms);
    std::vector<std::shared_ptr<Work>> works;
    for (uint32_t tag = 0; tag < 40; ++tag) {
      const Bytes bytes = Bytes(values).subspan(tag, 1);
      auto work = group.rank() == 0 ? group.recv(1, tag, bytes, 0ms) : group.send(0, tag, bytes, 0ms);
      ASSERT_TRUE(work.ok());
      works.push_back(work.value());
    }
    for (const auto& work : works) EXPECT_TRUE(work->wait(kNoDeadline).ok());
  });
  const auto told = Lines::of(0);
  EXPECT_GE(told.size(), 4U);
  EXPECT_LE(told.size(), 16U) << joined(told);
}

TEST_P(Stalls, AreSilentWhenNoticesAreOff) {
  const Lines all;
  Options silent = options();
  silent.stall_notice = 0ms;
  testing::on_all_ranks(2, silent, [](Communicator& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(2500ms);
    EXPECT_TRUE(testing::run(group, testing::barrier()).ok());
    if (group.rank() == 0) EXPECT_GT(group.waits().longest_s, 1);
  });
  EXPECT_TRUE(Lines::of(0).empty()) << joined(Lines::of(0));
}

INSTANTIATE_TEST_SUITE_P(Wires, Stalls, ::testing::ValuesIn(testing::wires()), testing::wire_name);

TEST(StalledRendezvous, NamesWhoHasNotCome) {
  const Lines all;
  Options options = testing::options_for(testing::wires()[0]);
  options.stall_notice = 1000ms;
  testing::at_all_places(3, options, [](const testing::Place& place) {
    if (place.rank == 2) std::this_thread::sleep_for(2500ms);
    auto group = place.form("late");
    ASSERT_TRUE(group.ok()) << group.status().message();
    group.value()->shutdown();
  });
  const auto told = Lines::of(0);
  ASSERT_GE(told.size(), 2U) << joined(told);
  EXPECT_NE(
      told[0].find("for group \"late\" to form: waiting for rank 2 of 3; 2 have come; are they started, with "
                   "this number of ranks, and with braid as backend?"),
      std::string::npos)
      << told[0];
  EXPECT_NE(told.back().find("the rendezvous of group \"late\" has ended after"), std::string::npos)
      << told.back();
}

// ---- and may be given up

TEST(GivenUp, AWaitEndsSoon) {
  testing::on_all_ranks(2, testing::options_for(testing::wires()[0]), [](Communicator& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(3000ms);
    auto work = group.start(testing::barrier(), false);
    ASSERT_TRUE(work.ok());
    if (group.rank() == 0) {
      int asked = 0;
      const auto begun = Clock::now();
      EXPECT_EQ(wait_looking_up(*work.value(), kNoDeadline, [&] { return ++asked == 2; }), Waited::kGivenUp);
      EXPECT_LT(Clock::now() - begun, 2500ms);
      EXPECT_EQ(wait_looking_up(*work.value(), Clock::now() + 1ms, {}), Waited::kLate);
    }
    EXPECT_EQ(wait_looking_up(*work.value(), kNoDeadline, [] { return false; }), Waited::kDone);
    EXPECT_TRUE(work.value()->status().ok());
  });
}

TEST(GivenUp, LeavingDoesNotWaitForWhatNeverEnds) {
  std::atomic<bool> left{false};
  testing::at_all_places(2, testing::options_for(testing::wires()[0]), [&](const testing::Place& place) {
    auto group = place.form("left");
    ASSERT_TRUE(group.ok());
    if (place.rank == 0) {
      auto work = group.value()->start(testing::barrier(), false);
      const auto begun = Clock::now();
      group.value()->shutdown([] { return true; });
      EXPECT_LT(Clock::now() - begun, 4s);  // shutdown() would wait for 5 s
      EXPECT_EQ(work.value()->wait(kNoDeadline).code(), Code::kAborted);
      left = true;
    }
    while (!left) std::this_thread::sleep_for(1ms);
  });
}

TEST(GivenUp, ARendezvousEndsBetweenHosts) {
  // The hosts' links are measured as the group forms; one rank comes as far as the store, and no further.
  testing::at_all_places(2, testing::options_for(testing::wires()[2]), [](const testing::Place& given) {
    testing::Place place = given;
    place.options.host = "host-" + std::to_string(place.rank);
    std::atomic<int> asked{0};
    if (place.rank == 0) place.options.give_up = [&] { return ++asked > 0; };
    const auto group = place.form("interrupted");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kAborted) << group.status().message();
    EXPECT_TRUE(says(group.status(), "interrupted")) << group.status().message();
  });
}

}  // namespace
}  // namespace braid
