// SPDX-License-Identifier: Apache-2.0
// One bad schedule for each reason to refuse, and the reason's words.
#include <gtest/gtest.h>

#include "schedule/text.h"
#include "verify/verify.h"

namespace braid {
namespace {

Status verdict(const std::string& text) {
  Result<Schedule> schedule = schedule_from_text(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return verify(schedule.value()).status();
}

void expect_refused(const std::string& text, const std::string& words) {
  Status status = verdict(text);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(words), std::string::npos) << "said: " << status.message();
}

const char* const kSwap =
    "all_reduce swap ranks=2 chunks=1\n"
    "r0\n  0: send i0 -> r1; reduce o0 = i0 + r1\n"
    "r1\n  0: send i0 -> r0; reduce o0 = i0 + r0\n";

TEST(Refusal, TheGoodOneIsAccepted) { EXPECT_TRUE(verdict(kSwap).ok()) << verdict(kSwap).message(); }

TEST(Refusal, NamesNodeRoundAndStep) {
  expect_refused(
      "all_reduce x ranks=2 chunks=1\nr0\n 0: send i0 -> r1\n 1: copy o0 = i0; send o1 -> r1\nr1\n",
      "all_reduce/x r0 round 1 step 1 (send o1 -> r1): o1 does not exist on r0, which has 1 chunks there");
}

TEST(Refusal, RefsThatDoNotExist) {
  expect_refused("broadcast x ranks=2 root=0 chunks=1\nr0\n 0: copy o0 = i0\nr1\n 0: copy o0 = i0\n",
                 "i0 does not exist on r1");
  expect_refused("reduce x ranks=2 root=0 chunks=1\nr0\nr1\n 0: copy o0 = i0\n", "o0 does not exist on r1");
  expect_refused("all_reduce x ranks=1 chunks=2\nr0\n 0: copy t1-2 = i0-1\n", "t1-2 does not exist");
}

// Two ranks that hand their vectors to r2, which does with them what `steps` say, and take the sum from it.
std::string with_aggregator(const std::string& steps) {
  return "all_reduce x ranks=2 aggregators=1 chunks=1\n"
         "r0\n 0: send i0 -> r2\n 1: recv o0 <- r2\n"
         "r1\n 0: send i0 -> r2\n 1: recv o0 <- r2\n"
         "r2\n 0: " +
         steps + "\n 1: send t0 -> r0; send t0 -> r1\n";
}

TEST(Refusal, AggregatorsThatAreMoreThanThat) {
  const Status good = verdict(with_aggregator("reduce t0 = r0 + r1"));
  EXPECT_TRUE(good.ok()) << good.message();
  expect_refused(with_aggregator("reduce t0 = i0 + r0 + r1"), "i0 does not exist on r2, which has 0 chunks there");
  expect_refused(with_aggregator("reduce o0 = r0 + r1"), "o0 does not exist on r2");
  expect_refused(with_aggregator("reduce t0 = r0 + r1; copy o0 = t0"), "o0 does not exist on r2");
  expect_refused(with_aggregator("reduce t1 = r0 + r1"), "t1 does not exist on r2, which has 1 chunks there");
  expect_refused(with_aggregator("recv t0 <- r0; reduce t0 = t0 + r1 + t0"), "counts a contribution twice");
  expect_refused(with_aggregator("recv t0 <- r0"), "r2 never takes this message");
  expect_refused(with_aggregator("reduce t0 = r0 + r1 + r3"), "there is no r3");
  expect_refused(with_aggregator("recv t0 <- r0; recv t0 <- r1"), "lands in the same memory");
}

TEST(Refusal, AggregatorsThatLeaveARankWithoutItsResult) {
  expect_refused(
      "all_reduce x ranks=2 aggregators=1 chunks=1\n"
      "r0\n 0: send i0 -> r2\n 1: recv o0 <- r2\nr1\n 0: send i0 -> r2\n"
      "r2\n 0: reduce t0 = r0 + r1\n 1: send t0 -> r0\n",
      "r1: in the end o0 holds nothing");
}

TEST(Refusal, AggregatorsThatAddUpInAnotherOrder) {
  expect_refused(
      "all_reduce x ranks=3 aggregators=1 chunks=1\n"
      "r0\n 0: send i0 -> r3; reduce o0 = i0 + r1 + r2\n"
      "r1\n 0: send i0 -> r0; send i0 -> r3\n 1: recv o0 <- r3\n"
      "r2\n 0: send i0 -> r0; send i0 -> r3\n 1: recv o0 <- r3\n"
      "r3\n 0: reduce t0 = r1 + r0 + r2\n 1: send t0 -> r1; send t0 -> r2\n",
      "r1: in the end o0 was computed in another way than on r0");
}

TEST(Refusal, AggregatorsOfBlocks) {
  expect_refused("all_gather x ranks=1 aggregators=1 chunks=1\nr0\n 0: copy o0 = i0\nr1\n",
                 "aggregators exist only in vector collectives");
}

TEST(Refusal, PeersThatDoNotExist) {
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: send i0 -> r2\nr1\n", "there is no r2");
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: reduce o0 = i0 + r7\nr1\n", "there is no r7");
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: send i0 -> r0\nr1\n", "messages with itself");
}

TEST(Refusal, WritesToTheInput) {
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: recv i0 <- r1\nr1\n", "the input is only read");
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: copy i0 = t0\nr1\n", "the input is only read");
}

TEST(Refusal, OperandsOfTheWrongShape) {
  expect_refused("all_reduce x ranks=1 chunks=1\nr0\n 0: reduce o0 = i0\n", "two sources or more");
  expect_refused("all_reduce x ranks=1 chunks=1\nr0\n 0: copy o0 = i0 + t0\n", "exactly one source, a local one");
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: copy o0 = r1\nr1\n", "exactly one source, a local one");
  expect_refused("all_reduce x ranks=1 chunks=2\nr0\n 0: copy o0-1 = i0\n", "differ in their number of chunks");
  expect_refused("all_gather x ranks=2 chunks=2\nr0\n 0: send o0-1 -> r1\nr1\n", "only in vector collectives");
  expect_refused("all_gather x ranks=2 chunks=2\nr0\n 0: reduce o0 = i0 + r1\nr1\n", "does not reduce");
}

TEST(Refusal, Races) {
  const std::string head = "broadcast x ranks=3 root=0 chunks=1\n";
  expect_refused(head +
                     "r0\n 0: send i0 -> r1; send i0 -> r2; copy o0 = i0\n"
                     "r1\n 0: recv o0 <- r0; recv o0 <- r2\nr2\n 0: recv o0 <- r0; send o0 -> r1\n",
                 "another message of this round lands in the same memory");
  expect_refused(head +
                     "r0\n 0: send i0 -> r1; copy o0 = i0\n"
                     "r1\n 0: recv o0 <- r0; send o0 -> r2\nr2\n 0: recv o0 <- r1\n",
                 "race: this memory is also sent in this round");
}

TEST(Refusal, RacesOfInPlaceCallsOnly) {
  expect_refused(
      "all_reduce x ranks=2 chunks=1\n"
      "r0\n 0: send i0 -> r1; recv o0 <- r1\n 1: reduce o0 = i0 + o0\n"
      "r1\n 0: send i0 -> r0; recv o0 <- r0\n 1: reduce o0 = i0 + o0\n",
      "race: this memory is also sent in this round (with input and output in the same memory)");
}

TEST(Refusal, ResultsThatOnlyInPlaceCallsGetWrong) {
  expect_refused(
      "all_reduce x ranks=2 chunks=1\n"
      "r0\n 0: send i0 -> r1; recv t0 <- r1\n 1: copy o0 = t0\n 2: reduce o0 = i0 + o0\n"
      "r1\n 0: send i0 -> r0; recv t0 <- r0\n 1: copy o0 = t0\n 2: reduce o0 = i0 + o0\n",
      "counts a contribution twice: (r1) + (r1) (with input and output in the same memory)");
}

TEST(Refusal, MessagesThatDoNotPairUp) {
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: send i0 -> r1\nr1\n",
                 "(send i0 -> r1): r1 never takes this message");
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: recv o0 <- r1\nr1\n",
                 "(recv o0 <- r1): r1 never sends the message it takes");
  expect_refused("all_reduce x ranks=3 chunks=1\nr0\n 0: reduce o0 = i0 + r1 + r2\nr1\n 0: send i0 -> r0\nr2\n",
                 "r2 never sends the message it takes");
}

TEST(Refusal, MessagesOfAnotherSize) {
  expect_refused(
      "broadcast x ranks=2 root=0 chunks=2\nr0\n 0: send i0-1 -> r1; copy o0-1 = i0-1\n"
      "r1\n 0: recv o0 <- r0\n",
      "the message from r0 has 2 chunks");
  expect_refused(
      "broadcast x ranks=2 root=0 chunks=2\nr0\n 0: send i0 -> r1; send i1 -> r1; copy o0-1 = i0-1\n"
      "r1\n 0: recv o1 <- r0; recv o0 <- r0\n",
      "puts chunk 0 into o1, the place of another");
  expect_refused("all_reduce x ranks=2 chunks=2\nr0\n 0: send i0 -> r1\nr1\n 0: reduce o1 = i1 + r0\n",
                 "combines chunk 1 with chunk 0");
  expect_refused(
      "all_to_all x ranks=2 chunks=2\nr0\n 0: send i0 -> r1; recv o1 <- r1; copy o0 = i0\n"
      "r1\n 0: send i0 -> r0; recv o0 <- r0; copy o1 = i1\n",
      "puts the block from r0 to r0 into o0");
}

TEST(Refusal, Deadlocks) {
  expect_refused(
      "all_reduce x ranks=2 chunks=1\n"
      "r0\n 0: send i0 -> r1\n 1: reduce o0 = i0 + r1\n"
      "r1\n 0: send i0 -> r0\n 1: reduce o0 = i0 + r0\n",
      "deadlock: waits for r1 to reach round 1, but that never gets past round 0");
}

TEST(Refusal, CirclesOfThree) {
  expect_refused(
      "all_gather x ranks=3 chunks=3\n"
      "r0\n 0: send i0 -> r1\n 1: recv o2 <- r2\n"
      "r1\n 0: send i0 -> r2\n 1: recv o0 <- r0\n"
      "r2\n 0: send i0 -> r0\n 1: recv o1 <- r1\n",
      "deadlock");
}

TEST(Refusal, ReadsBeforeAnythingIsThere) {
  expect_refused("all_reduce x ranks=2 chunks=1\nr0\n 0: send t0 -> r1\nr1\n 0: recv o0 <- r0\n",
                 "reads t0, which holds nothing yet");
  // A send reads what was there before its round, so what the round itself computes cannot leave with it.
  expect_refused(
      "broadcast x ranks=2 root=0 chunks=1\nr0\n 0: copy o0 = i0; send o0 -> r1\nr1\n 0: recv o0 <- r0\n",
      "reads o0, which holds nothing yet");
}

TEST(Refusal, ContributionsCountedTwice) {
  expect_refused(
      "all_reduce x ranks=2 chunks=1\n"
      "r0\n 0: send i0 -> r1; reduce o0 = i0 + r1 + i0\nr1\n 0: send i0 -> r0; reduce o0 = i0 + r0\n",
      "counts a contribution twice: (r0) + (r1) + (r0)");
}

TEST(Refusal, ContributionsLeftOut) {
  expect_refused(
      "all_reduce x ranks=3 chunks=1\n"
      "r0\n 0: send i0 -> r1; reduce o0 = i0 + r1\nr1\n 0: send i0 -> r0; reduce o0 = i0 + r0\n"
      "r2\n 0: copy o0 = i0\n",
      "all_reduce/x r0: in the end o0 lacks r2");
}

TEST(Refusal, OutputsNeverWritten) {
  expect_refused(
      "all_gather x ranks=2 chunks=2\nr0\n 0: copy o0 = i0; send i0 -> r1\n"
      "r1\n 0: recv o0 <- r0; copy o1 = i0\n",
      "all_gather/x r0: in the end o1 holds nothing");
}

TEST(Refusal, OutputsOfAnotherRank) {
  expect_refused("broadcast x ranks=2 root=1 chunks=1\nr0\n 0: recv o0 <- r1\nr1\n 0: send t0 -> r0\n",
                 "reads t0, which holds nothing yet");
  expect_refused("reduce x ranks=2 root=0 chunks=1\nr0\n 0: recv o0 <- r1\nr1\n 0: send i0 -> r0\n",
                 "reduce/x r0: in the end o0 lacks r0");
}

TEST(Refusal, OtherBitsOnOtherRanks) {
  expect_refused(
      "all_reduce x ranks=3 chunks=1\n"
      "r0\n 0: send i0 -> r1; send i0 -> r2; reduce o0 = i0 + r1 + r2\n"
      "r1\n 0: send i0 -> r0; send i0 -> r2; reduce o0 = i0 + r0 + r2\n"
      "r2\n 0: send i0 -> r0; send i0 -> r1; reduce o0 = r0 + r1 + i0\n",
      "r1: in the end o0 was computed in another way than on r0");
}

TEST(Refusal, ReducesThatCompleteAPartOfTheirTarget) {
  // r1 has chunk 0 of r2 when it adds r0's vector, and chunk 1 of r2 only later: where would an average divide?
  expect_refused(
      "all_reduce x ranks=3 chunks=2\n"
      "r0\n 0: send i0-1 -> r1\n"
      "r1\n 0: reduce t0 = i0 + r2; copy t1 = i1; reduce o0-1 = t0-1 + r0\n 1: reduce o1 = o1 + r2\n"
      "r2\n 0: send i0 -> r1\n 1: send i1 -> r1\n",
      "completes some of its chunks and not the others");
}

}  // namespace
}  // namespace braid
