// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/builder.h"

namespace braid {
namespace {

const char* const kExample =
    "broadcast two_halves ranks=2 root=1 chunks=4 shares=3,1,0,18446744073709551615\n"
    "r0\n"
    "  0: recv o0-1 <- r1\n"
    "  1:\n"
    "  2: recv o2-3 <- r1; copy t0 = o0\n"
    "r1\n"
    "  0: send i0-1 -> r0; copy o0-3 = i0-3; reduce o1 = i1 + t1 + r0\n"
    "  1: send o2-3 -> r0\n";

TEST(Text, RoundTripsEverything) {
  Result<Schedule> schedule = schedule_from_text(kExample);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  EXPECT_EQ(to_text(schedule.value()), kExample);
  EXPECT_EQ(schedule.value().collective, (Collective{CollectiveKind::kBroadcast, 2, 1}));
  EXPECT_EQ(schedule.value().algorithm, "two_halves");
  EXPECT_EQ(schedule.value().shares.back(), UINT64_MAX);
  EXPECT_EQ(schedule.value().programs[0][0][0], (Step{Op::kRecv, output(0, 2), 1, {}}));
  EXPECT_EQ(schedule.value().programs[1][0][2],
            (Step{Op::kReduce, output(1), -1, {local(input(1)), local(scratch(1)), message_from(0)}}));
}

TEST(Text, CountsAggregators) {
  const std::string text =
      "reduce x ranks=2 aggregators=1 root=1 chunks=1\n"
      "r0\n  0: send i0 -> r2\nr1\n  0: send i0 -> r2\n  1: recv o0 <- r2\n"
      "r2\n  0: reduce t0 = r0 + r1\n  1: send t0 -> r1\n";
  Result<Schedule> schedule = schedule_from_text(text);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  EXPECT_EQ(schedule.value().nodes(), 3);
  EXPECT_EQ(schedule.value().aggregators(), 1);
  EXPECT_EQ(schedule.value().collective.ranks, 2);
  EXPECT_EQ(to_text(schedule.value()), text);
}

TEST(Text, IgnoresBlanksAndEmptyLines) {
  Result<Schedule> schedule =
      schedule_from_text("\n  all_gather\tring  ranks=1 chunks=1 \r\n\nr0\r\n 0 :copy o0=i0 ;copy t0= o0\n\n");
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  EXPECT_EQ(to_text(schedule.value()), "all_gather ring ranks=1 chunks=1\nr0\n  0: copy o0 = i0; copy t0 = o0\n");
}

TEST(Text, NamesASingleStep) {
  Builder builder({CollectiveKind::kAllReduce, 2, 0}, "ring", 2);
  builder.recv(1, output(1), 0);
  EXPECT_EQ(to_text(std::move(builder).build(), 1, 0, 0), "all_reduce/ring r1 round 0 step 0 (recv o1 <- r0)");
}

struct Wrong {
  const char* text;
  const char* message;
};

TEST(Text, ErrorsNameTheLineAndWhatWasExpected) {
  const std::string head = "all_reduce ring ranks=1 chunks=1\n";
  for (const Wrong& wrong : std::vector<Wrong>{
           {"", "line 1: expected a schedule"},
           {"allreduce ring", "line 1: expected the name of a collective, found \"allreduce\""},
           {"all_reduce", "line 1: expected the name of an algorithm, found the end of the line"},
           {"all_reduce ring ranks=x", "line 1: expected a number of ranks, found \"x\""},
           {"all_reduce ring ranks=-1", "line 1: expected a number of ranks, found \"-1\""},
           {"all_reduce ring ranks=99999999999999999999999", "a number of ranks of at most"},
           {"all_reduce ring ranks=2000000000 chunks=1", "a number of ranks of at most"},
           {"all_reduce ring ranks=1", "line 1: expected \"chunks=\""},
           {"broadcast direct ranks=1 chunks=1", "line 1: expected \"root=\""},
           {"all_reduce ring ranks=1 aggregators=", "line 1: expected a number of aggregators"},
           {"all_reduce ring ranks=1 aggregators=1 chunks=1\nr0", "expected r1 of 2 nodes"},
           {"all_reduce ring ranks=1 aggregators=1 chunks=1\nr0\nr1\nr2", "line 4: expected no further rank"},
           {"all_reduce ring ranks=1 chunks=1 shares=", "line 1: expected a share"},
           {"all_reduce ring ranks=1 chunks=1 shares=18446744073709551616", "a share of at most"},
           {"all_reduce ring ranks=1 chunks=1 twice", "line 1: expected the end of the line, found \"twice\""},
           {"all_reduce ring ranks=1000000000 chunks=1\nr0", "expected r1 of 1000000000 nodes"},
           {"$", "line 2: expected r0, found \"$\""},
           {"r1", "line 2: expected r0, found \"r1\""},
           {"0: copy o0 = i0", "line 2: expected r0"},
           {"r0\nr1", "line 3: expected no further rank"},
           {"r0\n 1: copy o0 = i0", "line 3: expected round 0 or the next rank, found \"1:\""},
           {"r0\n 0 copy", "line 3: expected \":\""},
           {"r0\n 0: move o0", "line 3: expected send, recv, reduce or copy, found \"move\""},
           {"r0\n 0: sendo0 -> r1", "expected send, recv, reduce or copy"},
           {"r0\n 0: send x0 -> r1", "line 3: expected a chunk such as i0, o0 or t0-3, found \"x0\""},
           {"r0\n 0: send o -> r1", "line 3: expected a chunk number"},
           {"r0\n 0: send o3-2 -> r1", "line 3: expected a chunk after 3"},
           {"r0\n 0: send o0-9999999999 -> r1", "a chunk number of at most"},
           {"r0\n 0: send o0 <- r1", "line 3: expected \"->\", found \"<-\""},
           {"r0\n 0: send o0 -> 1", "line 3: expected \"r\""},
           {"r0\n 0: send o0 -> r", "line 3: expected a rank number"},
           {"r0\n 0: copy o0 i0", "line 3: expected \"=\""},
           {"r0\n 0: reduce o0 = i0 +", "line 3: expected a chunk such as"},
           {"r0\n 0: copy o0 = i0;", "line 3: expected send, recv, reduce or copy, found the end of the line"},
           {"r0\n 0: copy o0 = i0 copy", "line 3: expected the end of the line"}}) {
    std::string text = wrong.text;
    bool has_head = text.empty() || text[0] == 'a' || text[0] == 'b';
    Status status = schedule_from_text(has_head ? text : head + text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << text << "\n  gives " << status.message();
  }
}

// Whatever is accepted must be written and read again as the same; nothing may crash.
TEST(Text, SurvivesGarbage) {
  std::mt19937 random(7);
  const std::string alphabet = "raiotsend->;:=+,0123456789 \n\t\r\0\xff";
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = kExample;
    for (int edit = static_cast<int>(random() % 4); edit >= 0; --edit) {
      size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = alphabet[random() % alphabet.size()]; break;
        case 1: text.erase(at, random() % 9 + 1); break;
        default: text.insert(at, 1, alphabet[random() % alphabet.size()]); break;
      }
      if (text.empty()) text = "r";
    }
    Result<Schedule> schedule = schedule_from_text(text);
    if (!schedule.ok()) continue;
    ++accepted;
    Result<Schedule> again = schedule_from_text(to_text(schedule.value()));
    ASSERT_TRUE(again.ok()) << text << again.status().message();
    ASSERT_EQ(again.value(), schedule.value()) << text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace braid
