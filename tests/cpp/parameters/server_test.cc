// SPDX-License-Identifier: Apache-2.0
// One server and the calls of workers that are played by this thread.
#include "parameters/server.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "parameters/one_server.h"

namespace braid::testing {
namespace {

TEST_F(OneServer, CallsWaitForTheFirstValues) {
  make(Mode::kAsync, 2);
  const Played& pull = call(1, CallKind::kPull);
  const Played& push = call(1, CallKind::kPushPull, 1);
  EXPECT_FALSE(pull.done());
  EXPECT_FALSE(push.done());
  install(5);
  ASSERT_TRUE(pull.done());
  ASSERT_TRUE(push.done());
  EXPECT_EQ(pull.result[0], 5);
  EXPECT_EQ(push.result[0], 4);
}

TEST_F(OneServer, PushesWaitUntilTheFirstWorkersHaveCome) {
  make(Mode::kSync, 1);
  server_->await_first(2);
  server_->has_heard(0);
  install(5);
  const Played& early = call(0, CallKind::kPushPull, 1);
  EXPECT_FALSE(early.done());
  EXPECT_EQ(value(), 5);
  Job remote;
  remote.worker = 0;
  remote.call.kind = CallKind::kPush;
  remote.call.count = kCount;
  EXPECT_EQ(server_->acquire(remote), nullptr) << "a push that waits may take no buffer";
  server_->cancel(remote);
  ASSERT_TRUE(server_->admit(1, "same").ok());
  server_->has_heard(1);
  EXPECT_FALSE(early.done());
  const Played& late = call(1, CallKind::kPushPull, 3);
  ASSERT_TRUE(early.done());
  ASSERT_TRUE(late.done());
  EXPECT_EQ(early.result[0], 3);  // one round of both: 5 - (1 + 3) / 2
}

TEST_F(OneServer, ASecondWorkerWithTheSameNumberIsRefused) {
  make(Mode::kAsync, 2);
  install(5);
  const Status refused = server_->admit(1, "same");
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_TRUE(says(refused, "worker 1 is here already")) << refused.message();
  EXPECT_EQ(value(1), 5) << "the first one goes on";
  server_->dismiss(1, false);
  EXPECT_TRUE(server_->admit(1, "same").ok()) << "its number is free again";
}

TEST_F(OneServer, OtherSettingsAreRefusedAndNamed) {
  make(Mode::kAsync, 1);
  const Status refused = server_->admit(1, "other");
  EXPECT_EQ(refused.code(), Code::kMismatch);
  EXPECT_NE(refused.message().find("\"other\", not \"same\""), std::string::npos) << refused.message();
  EXPECT_EQ(server_->refusal().code(), Code::kMismatch);
}

TEST_F(OneServer, AnUnknownShardIsRefused) {
  make(Mode::kAsync, 1);
  install(0);
  Played played;
  played.job.worker = 0;
  played.job.call.shard = 3;
  played.job.call.count = kCount;
  server_->submit(played.job);
  ASSERT_TRUE(played.done());
  EXPECT_EQ(played.job.status.code(), Code::kMismatch);
  EXPECT_EQ(played.job.answer.verdict, Verdict::kFailed);
}

TEST_F(OneServer, RoundRobinTakesTurns) {
  make(Mode::kRoundRobin, 3);
  install(0);
  const Played& two = call(2, CallKind::kPushPull, -1);
  const Played& one = call(1, CallKind::kPushPull, -10);
  EXPECT_FALSE(one.done());
  EXPECT_FALSE(two.done());
  const Played& zero = call(0, CallKind::kPushPull, -100);
  ASSERT_TRUE(zero.done() && one.done() && two.done());
  EXPECT_EQ(zero.result[0], 100);
  EXPECT_EQ(one.result[0], 110);
  EXPECT_EQ(two.result[0], 111);
  EXPECT_FALSE(call(1, CallKind::kPush, -1).done()) << "worker 0 is next";
  server_->dismiss(0, true);
  EXPECT_EQ(value(1), 112) << "worker 0 has died, so the turn is worker 1's";
}

TEST_F(OneServer, SspHoldsTheFastWorker) {
  make(Mode::kSsp, 2, 1);
  install(0);
  EXPECT_TRUE(call(0, CallKind::kPushPull, -1).done()) << "one ahead is allowed";
  const Played& ahead = call(0, CallKind::kPushPull, -1);
  EXPECT_FALSE(ahead.done()) << "two ahead is not";
  const Played& slow = call(1, CallKind::kPushPull, -10);
  ASSERT_TRUE(slow.done());
  ASSERT_TRUE(ahead.done());
  EXPECT_EQ(ahead.result[0], 12) << "sees the update that it waited for";
}

// Whoever pushes, and pulls afterwards, may be as far ahead as whoever does both at once.
TEST_F(OneServer, SspHoldsPushesWithoutAPull) {
  make(Mode::kSsp, 2, 1);
  install(0);
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  const Played& ahead = call(0, CallKind::kPush, 1);
  EXPECT_FALSE(ahead.done());
  EXPECT_EQ(value(1), -2) << "it is applied, though";
  EXPECT_TRUE(call(1, CallKind::kPush, 1).done());
  EXPECT_TRUE(ahead.done());
  EXPECT_FALSE(call(0, CallKind::kPush, 1).done());
}

TEST_F(OneServer, SspGoesOnWhenTheSlowestDies) {
  make(Mode::kSsp, 3, 0);
  install(0);
  const Played& first = call(0, CallKind::kPushPull, -1);
  const Played& second = call(1, CallKind::kPushPull, -1);
  EXPECT_FALSE(first.done());
  server_->dismiss(2, true);
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(second.done());
  EXPECT_EQ(server_->stats().died, 1u);
}

TEST_F(OneServer, ANewcomerStartsAtTheLeastClock) {
  make(Mode::kSsp, 2, 0);
  install(0);
  for (int round = 0; round < 3; ++round) {
    call(0, CallKind::kPush, -1);
    call(1, CallKind::kPush, -1);
  }
  ASSERT_TRUE(server_->admit(7, "same").ok());
  EXPECT_FALSE(call(0, CallKind::kPushPull, -1).done())
      << "waits for the newcomer's next update, not for its first three";
  call(1, CallKind::kPush, -1);
  const Played& newcomer = call(7, CallKind::kPushPull, -1);
  EXPECT_TRUE(newcomer.done());
}

TEST_F(OneServer, JobsOfAWorkerThatLeavesFailAndHoldNobodyUp) {
  make(Mode::kSsp, 3, 0);
  install(0);
  const Played& leaver = call(2, CallKind::kPushPull, -1);
  const Played& other = call(0, CallKind::kPushPull, -1);
  server_->dismiss(2, false);
  ASSERT_TRUE(leaver.done());
  EXPECT_EQ(leaver.job.status.code(), Code::kAborted);
  EXPECT_FALSE(other.done()) << "worker 1 has not come yet";
  EXPECT_TRUE(call(1, CallKind::kPushPull, -1).done());
  EXPECT_TRUE(other.done());
  const Played& stranger = call(2, CallKind::kPull);
  ASSERT_TRUE(stranger.done());
  EXPECT_NE(stranger.job.status.message().find("worker 2 has left"), std::string::npos);
  EXPECT_TRUE(call(0, CallKind::kPushPull, -1).job.is_applied);
  EXPECT_TRUE(call(1, CallKind::kPushPull, -1).done()) << "and worker 2 is not waited for";
}

TEST_F(OneServer, SyncAppliesTheMeanOnce) {
  make(Mode::kSync, 3);
  install(0);
  const Played& two = call(2, CallKind::kPushPull, -3);
  const Played& zero = call(0, CallKind::kPushPull, -6);
  EXPECT_FALSE(two.done());
  EXPECT_FALSE(zero.done());
  const Played& one = call(1, CallKind::kPushPull, -9);
  ASSERT_TRUE(zero.done() && one.done() && two.done());
  EXPECT_EQ(zero.result[0], 6);
  EXPECT_EQ(two.result[0], 6);
  EXPECT_EQ(one.job.answer.shard_version, 1u);
}

TEST_F(OneServer, SyncHoldsTheNextRoundsUpdate) {
  make(Mode::kSync, 2);
  install(0);
  const Played& first = call(0, CallKind::kPush, -2);
  const Played& next = call(0, CallKind::kPush, -20);
  EXPECT_FALSE(first.done() || next.done());
  EXPECT_TRUE(call(1, CallKind::kPush, -4).done());
  EXPECT_TRUE(first.done());
  EXPECT_EQ(value(), 3);
  EXPECT_FALSE(next.done());
  EXPECT_TRUE(call(1, CallKind::kPush, -40).done());
  EXPECT_EQ(value(), 33);
}

TEST_F(OneServer, SyncGoesOnWithoutTheDead) {
  make(Mode::kSync, 3);
  install(0);
  const Played& zero = call(0, CallKind::kPushPull, -2);
  const Played& two = call(2, CallKind::kPushPull, -4);
  server_->dismiss(1, true);
  ASSERT_TRUE(zero.done());
  ASSERT_TRUE(two.done());
  EXPECT_EQ(two.result[0], 3) << "the mean of two";
}

TEST_F(OneServer, AQuorumEndsTheRoundAfterTheGracePeriod) {
  make(Mode::kQuorum, 3, 0, 4, {2, milliseconds(20)});
  install(0);
  const Played& two = call(2, CallKind::kPushPull, -3);
  EXPECT_EQ(server_->end_late_rounds(), kNoDeadline) << "one is no quorum";
  const Played& zero = call(0, CallKind::kPushPull, -6);
  const Deadline ends = server_->end_late_rounds();
  EXPECT_FALSE(two.done() || zero.done()) << "the grace period has just begun";
  ASSERT_NE(ends, kNoDeadline);
  std::this_thread::sleep_until(ends);
  EXPECT_EQ(server_->end_late_rounds(), kNoDeadline);
  ASSERT_TRUE(two.done() && zero.done());
  EXPECT_EQ(zero.result[0], 4.5f) << "the mean of two";
  // The late one is in the next round. All of that round are there, so it needs no grace period.
  const Played& late = call(1, CallKind::kPushPull, -2);
  EXPECT_FALSE(late.done());
  call(0, CallKind::kPush, -2);
  EXPECT_FALSE(late.done());
  call(2, CallKind::kPush, -2);
  ASSERT_TRUE(late.done());
  EXPECT_EQ(late.result[0], 6.5f);
  EXPECT_EQ(two.result[0], 4.5f) << "an answer is a copy";
  // Nobody waits for one that rests.
  ASSERT_TRUE(call(1, CallKind::kRest).done());
  EXPECT_EQ(value(), 6.5f) << "it changes nothing";
  call(0, CallKind::kPush, 1);
  EXPECT_TRUE(call(2, CallKind::kPush, 1).done());
  EXPECT_EQ(value(), 5.5f);
  // Who is dead is not waited for, even without a quorum.
  const Played& alone = call(1, CallKind::kPushPull, -1);
  server_->dismiss(0, true);
  EXPECT_FALSE(alone.done());
  server_->dismiss(2, true);
  ASSERT_TRUE(alone.done());
  EXPECT_EQ(alone.result[0], 6.5f);
}

TEST_F(OneServer, WhoIsLateGoesOnIfTheQuorumSaysSo) {
  make(Mode::kQuorum, 3, 0, 4, {2, milliseconds(0), 0, true});
  install(0);
  const Played& zero = call(0, CallKind::kPushPull, -6, 0);
  const Played& one = call(1, CallKind::kPushPull, -2, 0);
  EXPECT_FALSE(zero.done());
  EXPECT_EQ(server_->end_late_rounds(), kNoDeadline);
  ASSERT_TRUE(zero.done() && one.done());
  EXPECT_EQ(one.result[0], 4);
  // Worker 2 meant the round that is over: it has an answer at once, and counts in the next round.
  const Played& late = call(2, CallKind::kPushPull, -3, 0);
  ASSERT_TRUE(late.done());
  EXPECT_EQ(late.result[0], 4);
  EXPECT_EQ(late.job.answer.shard_version, 1u);
  // Its next push is in time. It counts in the same round as the late one, but is one worker of the quorum.
  const Played& in_time = call(2, CallKind::kPushPull, -9, 1);
  EXPECT_EQ(server_->end_late_rounds(), kNoDeadline);
  EXPECT_FALSE(in_time.done());
  const Played& again = call(0, CallKind::kPushPull, -6, 1);
  EXPECT_EQ(server_->end_late_rounds(), kNoDeadline);
  ASSERT_TRUE(in_time.done() && again.done());
  EXPECT_EQ(again.result[0], 10) << "4 + (3 + 9 + 6) / 3";
  const Played& look = call(1, CallKind::kLook);
  ASSERT_TRUE(look.done());
  EXPECT_EQ(look.job.answer.shard_version, 2u);
}

TEST_F(OneServer, TheFirstRoundsOfAQuorumTakeTheMean) {
  make(Mode::kQuorum, 2, 0, 4, {2, milliseconds(0), 2, false});
  install(0);
  const auto round = [&](float update) {
    const uint64_t base = call(0, CallKind::kLook).job.answer.shard_version;
    for (const int worker : {0, 1}) {
      Played& played = *played_.emplace_back(std::make_unique<Played>());
      played.table = {{kCount, with_rate(0.5)}};
      played.update.assign(kCount, update);
      played.job.worker = worker;
      played.job.call.kind = CallKind::kPush;
      played.job.call.count = kCount;
      played.job.call.base = base;
      played.job.table = &played.table;
      played.job.update = played.update.data();
      server_->submit(played.job);
    }
    EXPECT_TRUE(played_.back()->done());
  };
  round(-1);
  EXPECT_EQ(value(), 1);
  round(-1);
  EXPECT_EQ(value(), 2);
  round(-1);
  EXPECT_EQ(value(), 2.5f) << "the rule, with its rate";
}

TEST_F(OneServer, OneThatOnlyLooksOnIsNeverAwaited) {
  make(Mode::kQuorum, 3, 0, 4, {2, milliseconds(1000000)});
  install(0);
  ASSERT_TRUE(call(2, CallKind::kRest).done());
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_FALSE(call(0, CallKind::kPush, -1).done()) << "worker 1 trains, too";
    EXPECT_TRUE(call(1, CallKind::kPush, -1).done());
    for (const int worker : {0, 1}) ASSERT_TRUE(call(worker, CallKind::kRest).done());
  }
  EXPECT_EQ(value(2), 2);
}

TEST_F(OneServer, NobodyIsAheadOfOneThatRests) {
  make(Mode::kSsp, 3, 1);
  install(0);
  EXPECT_TRUE(call(2, CallKind::kPush, 1).done());
  const Played& ahead = call(2, CallKind::kPushPull, 1);
  EXPECT_FALSE(ahead.done());
  ASSERT_TRUE(call(0, CallKind::kRest).done());
  EXPECT_FALSE(ahead.done()) << "the other one does not rest";
  ASSERT_TRUE(call(1, CallKind::kRest).done());
  EXPECT_TRUE(ahead.done());
  // One that wakes begins where worker 2 is, and they are bound to each other again.
  EXPECT_TRUE(call(0, CallKind::kPushPull, 1).done());
  EXPECT_TRUE(call(2, CallKind::kPushPull, 1).done());
  EXPECT_TRUE(call(2, CallKind::kPushPull, 1).done());
  const Played& again = call(2, CallKind::kPushPull, 1);
  EXPECT_FALSE(again.done());
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  EXPECT_TRUE(again.done());
  // After all have rested, all are bound to each other, and equally far.
  for (const int worker : {0, 1, 2}) ASSERT_TRUE(call(worker, CallKind::kRest).done());
  EXPECT_TRUE(call(1, CallKind::kPushPull, 1).done());
  const Played& first = call(1, CallKind::kPushPull, 1);
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  EXPECT_FALSE(first.done());
  EXPECT_TRUE(call(2, CallKind::kPush, 1).done());
  EXPECT_TRUE(first.done());
}

TEST_F(OneServer, ARoundOfAllGoesOnWithoutThoseThatRest) {
  make(Mode::kSync, 3);
  install(0);
  const Played& two = call(2, CallKind::kPushPull, -4);
  ASSERT_TRUE(call(0, CallKind::kRest).done());
  EXPECT_FALSE(two.done());
  ASSERT_TRUE(call(1, CallKind::kRest).done());
  ASSERT_TRUE(two.done());
  EXPECT_EQ(two.result[0], 4);
  const Played& zero = call(0, CallKind::kPushPull, -2);
  EXPECT_TRUE(call(2, CallKind::kPush, -4).done());
  EXPECT_FALSE(zero.done()) << "who rests pushes again when all have rested";
  ASSERT_TRUE(call(2, CallKind::kRest).done());
  EXPECT_FALSE(zero.done()) << "now all are waited for";
  EXPECT_FALSE(call(1, CallKind::kPush, -2).done());
  EXPECT_TRUE(call(2, CallKind::kPush, -5).done());
  ASSERT_TRUE(zero.done());
  EXPECT_EQ(zero.result[0], 11);
  // The last one that trains dies.
  for (const int worker : {0, 1}) ASSERT_TRUE(call(worker, CallKind::kRest).done());
  const Played& held = call(1, CallKind::kPush, 1);
  EXPECT_FALSE(held.done());
  server_->dismiss(2, true);
  EXPECT_FALSE(held.done());
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  EXPECT_TRUE(held.done());
}

TEST_F(OneServer, TurnsPassByThoseThatRest) {
  make(Mode::kRoundRobin, 3);
  install(0);
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  const Played& two = call(2, CallKind::kPush, 1);
  EXPECT_FALSE(two.done());
  ASSERT_TRUE(call(1, CallKind::kRest).done());
  EXPECT_TRUE(two.done());
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  const Played& other = call(2, CallKind::kPush, 1);
  EXPECT_TRUE(other.done());
  const Played& woken = call(1, CallKind::kPush, 1);
  EXPECT_FALSE(woken.done()) << "it is worker 0's turn";
  EXPECT_TRUE(call(0, CallKind::kPush, 1).done());
  EXPECT_TRUE(woken.done());
}

TEST(Quorum, IsReadFromTheMode) {
  EXPECT_EQ(mode_from_text("quorum:at_least=2,grace_ms=500").value(), Mode::kQuorum);
  EXPECT_EQ(quorum_from_text("quorum:at_least=2,grace_ms=500").value().grace, milliseconds(500));
  EXPECT_EQ(quorum_from_text("quorum:at_least=2,grace_ms=500").value().at_least, 2);
  EXPECT_EQ(quorum_from_text("quorum:at_least=2,grace_ms=500").value().mean_rounds, 0u);
  EXPECT_EQ(quorum_from_text("quorum:at_least=2,grace_ms=500,mean_rounds=7").value().mean_rounds, 7u);
  EXPECT_FALSE(quorum_from_text("quorum:at_least=2,grace_ms=500,mean_rounds=7").value().late_goes_on);
  EXPECT_TRUE(quorum_from_text("quorum:at_least=2,grace_ms=5,mean_rounds=7,late=goes_on").value().late_goes_on);
  EXPECT_TRUE(quorum_from_text("quorum:at_least=2,grace_ms=5,late=goes_on").value().late_goes_on);
  for (const char* bad :
       {"quorum:", "quorum:at_least=2,grace_ms=5,mean_rounds=-1", "quorum:at_least=2,grace_ms=5,late",
        "quorum:at_least=2,grace_ms=5,mean_rounds=1,", "quorum:at_least=0,grace_ms=1",
        "quorum:at_least=2,grace_ms=-1", "quorum:at_least=2,grace_ms=5s"}) {
    EXPECT_EQ(quorum_from_text(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST_F(OneServer, RefusedNumbersChangeNothing) {
  for (const Mode mode : {Mode::kAsync, Mode::kSync}) {
    make(mode, 1);
    install(1);
    Played played;
    played.table[0].numbers.rate = -1;
    played.update.assign(kCount, 1);
    played.job.worker = 0;
    played.job.call.kind = CallKind::kPushPull;
    played.job.call.count = kCount;
    played.job.table = &played.table;
    played.job.update = played.update.data();
    played.job.result = played.result.data();
    server_->submit(played.job);
    ASSERT_TRUE(played.done());
    EXPECT_EQ(played.job.status.code(), Code::kInvalidArgument);
    EXPECT_EQ(value(), 1);
  }
}

}  // namespace
}  // namespace braid::testing
