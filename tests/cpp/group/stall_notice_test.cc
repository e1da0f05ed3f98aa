// SPDX-License-Identifier: Apache-2.0
// When a wait is told, and in which words.
#include "group/stall_notice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "communicator/ranks.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::says;
using Step = StallWatch::Step;

// What is due in each second, as letters: s(how), a(sk), t(ell).
std::string steps_at(StallWatch& watch, Clock::time_point now) {
  std::string text;
  for (Step step = watch.step(now); step != Step::kNone; step = watch.step(now)) {
    text += step == Step::kShow ? 's' : step == Step::kAsk ? 'a' : 't';
  }
  return text;
}

TEST(StallWatch, TellsAtDoublingTimesAndAsksBefore) {
  const Clock::time_point begun{100s};
  StallWatch watch(begun, 30s);
  std::string told;
  std::string asked;
  for (Clock::time_point now = begun; now <= begun + 300s; now = std::max(now + 1ms, watch.due())) {
    for (const char step : steps_at(watch, now)) {
      const std::string second = std::to_string((now - begun) / 1ms) + " ";
      if (step == 't') told += second;
      if (step == 'a') asked += second;
    }
  }
  EXPECT_EQ(told, "30000 60000 120000 240000 ");
  EXPECT_EQ(asked, "29700 59700 119700 239700 ");
  EXPECT_EQ(watch.notices(), 4);
}

TEST(StallWatch, ShowsOnceASecond) {
  const Clock::time_point begun{100s};
  StallWatch watch(begun, 0s);
  EXPECT_EQ(watch.due(), begun + 1s);
  EXPECT_EQ(steps_at(watch, begun + 999ms), "");
  EXPECT_FALSE(watch.has_shown());
  EXPECT_EQ(steps_at(watch, begun + 1s), "s");
  EXPECT_TRUE(watch.has_shown());
  EXPECT_EQ(watch.due(), begun + 2s);
  EXPECT_EQ(steps_at(watch, begun + 3600s), "s");
  EXPECT_EQ(watch.notices(), 0);
}

TEST(StallWatch, GivesTimeForAnswersHoweverShortTheFirst) {
  const Clock::time_point begun{100s};
  StallWatch watch(begun, 100ms);
  EXPECT_EQ(steps_at(watch, begun), "a");
  EXPECT_EQ(steps_at(watch, begun + 299ms), "");
  EXPECT_EQ(steps_at(watch, begun + 300ms), "t");
  EXPECT_GT(watch.due(), begun + 300ms);
}

TEST(StallWatch, WatchesNothingUnlessBegun) {
  StallWatch watch;
  EXPECT_EQ(watch.due(), kNoDeadline);
  EXPECT_EQ(steps_at(watch, Clock::now()), "");
}

TEST(StallSetting, IsANumberOfSecondsOrZero) {
  const auto read = [](const char* text) {
    ::setenv("BRAID_STALL_NOTICE", text, 1);
    const auto options = options_from_env();
    ::unsetenv("BRAID_STALL_NOTICE");
    return options;
  };
  EXPECT_EQ(read("").value().stall_notice, 30s);
  EXPECT_EQ(read("0").value().stall_notice, 0s);
  EXPECT_EQ(read("0.25").value().stall_notice, 250ms);
  EXPECT_EQ(read("90").value().stall_notice, 90s);
  for (const char* wrong : {"-1", "0.01", "ten", "3 s", "1e99", "nan", "inf"}) {
    const auto options = read(wrong);
    ASSERT_FALSE(options.ok()) << wrong;
    EXPECT_TRUE(says(options.status(), "BRAID_STALL_NOTICE=")) << options.status().message();
    EXPECT_TRUE(says(options.status(), "from 0.1 to 1000000, or 0 for never")) << options.status().message();
  }
}

TEST(StallWords, NamesWhoHasNotBegunFirst) {
  const std::string text = culprits_text({{1, "a (pid 11)", 17, "3 of 8 messages with it are open"},
                                          {2, "b (pid 22)", 16, ""},
                                          {3, "", -1, ""},
                                          {4, "", 0, ""}},
                                         17);
  EXPECT_EQ(
      text,
      "rank 2 on b (pid 22) has not begun it; its last operation was #16; rank 3 did not answer when asked; "
      "rank 4 has not begun it, nor any before; rank 1 on a (pid 11) has begun it, and 3 of 8 messages with it "
      "are open");
}

TEST(StallWords, NamesAFewOfMany) {
  std::vector<Culprit> culprits;
  std::vector<Node> ranks;
  for (Node rank = 1; rank <= 16; ++rank) {
    culprits.push_back({rank, "", 1, ""});
    ranks.push_back(rank);
  }
  const std::string text = culprits_text(culprits, 2);
  EXPECT_TRUE(text.ends_with("rank 4 has not begun it; its last operation was #1 and 12 more")) << text;
  EXPECT_EQ(ranks_text(ranks), "ranks 1, 2, 3, 4 and 12 more");
  EXPECT_EQ(ranks_text({7}), "rank 7");
  EXPECT_EQ(ranks_text({2, 5}), "ranks 2, 5");
}

TEST(StallWords, SaysSecondsPlainly) {
  EXPECT_EQ(seconds_text(30s), "30 s");
  EXPECT_EQ(seconds_text(250ms), "0.25 s");
  EXPECT_EQ(seconds_text(3840s), "3840 s");
}

}  // namespace
}  // namespace braid
