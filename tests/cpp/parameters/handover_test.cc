// SPDX-License-Identifier: Apache-2.0
// Hand-overs between two servers, with workers that are played by this thread.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kShardNumbers = 4;

// A call, with the memory that its worker keeps.
struct PlayedCall {
  Table table{{kShardNumbers, with_rate(1)}};
  std::vector<float> memory =
      std::vector<float>(snapshot_floats({.hand_over = HandOver::kYes, .count = kShardNumbers}, 0));
  Job job;

  bool done() const { return job.done.load(); }
  bool is_refused() const { return done() && job.answer.has_moved != 0; }
};

class Handover : public ::testing::Test {
 protected:
  void make(Mode mode) {
    for (auto& server : servers_) {
      ServerOptions options;
      options.rule = rule_from_text("sgd").value();
      options.mode = mode;
      server = std::make_unique<Server>(options, std::vector<Extent>{{0, kShardNumbers}}, bell_);
      for (int worker = 0; worker < 3; ++worker) ASSERT_TRUE(server->admit(worker, "").ok());
    }
    ASSERT_TRUE(call(0, 0, CallKind::kInstall).done());
  }
  PlayedCall& call(size_t server, int worker, CallKind kind, HandOver hand_over = HandOver::kNo,
                   uint64_t moves = 0, const PlayedCall* brings = nullptr) {
    PlayedCall& played = *played_.emplace_back(std::make_unique<PlayedCall>());
    if (brings != nullptr) played.memory = brings->memory;
    played.job.worker = worker;
    played.job.call.kind = kind;
    played.job.call.hand_over = hand_over;
    played.job.call.count = kShardNumbers;
    played.job.call.moves = moves;
    played.job.call.place = 1;
    played.job.table = &played.table;
    played.job.update = played.job.result = played.memory.data();
    servers_[server]->submit(played.job);
    return played;
  }
  Verdict farewell(int worker) {
    Verdict verdict = Verdict::kDone;
    return servers_[0]->farewell(worker, verdict).ok() ? verdict : Verdict::kFailed;
  }
  void TearDown() override {
    for (const auto& server : servers_) server->close({Code::kAborted, "over"});
  }

  DoorbellWord bell_;
  std::vector<std::unique_ptr<PlayedCall>> played_;
  std::unique_ptr<Server> servers_[2];
};

TEST_F(Handover, AnOpenRoundIsRefusedAndNothingOfItIsApplied) {
  make(Mode::kSync);
  const PlayedCall& first = call(0, 0, CallKind::kPushPull);
  const PlayedCall& second = call(0, 1, CallKind::kPushPull);
  EXPECT_FALSE(first.done());
  servers_[0]->leave();
  EXPECT_TRUE(first.is_refused());
  EXPECT_TRUE(second.is_refused());
  EXPECT_EQ(servers_[0]->stats().updates, 0u);
}

TEST_F(Handover, TheOwnerTellsWhereTheShardHasGone) {
  make(Mode::kAsync);
  servers_[0]->leave();
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_EQ(taken.job.answer.moves, 1u);
  EXPECT_EQ(call(0, 2, CallKind::kSnapshot, HandOver::kYes).job.answer.verdict, Verdict::kWait);
  EXPECT_EQ(call(0, 2, CallKind::kMoved, HandOver::kNo, 1).job.status.code(), Code::kAborted) << "worker 1 has it";
  EXPECT_TRUE(call(1, 1, CallKind::kRestore, HandOver::kYes, 1, &taken).job.status.ok());
  EXPECT_EQ(call(1, 2, CallKind::kFind).job.answer.verdict, Verdict::kWait) << "nobody has been told";
  EXPECT_EQ(farewell(0), Verdict::kWait) << "it may still have to give the shard to another worker";
  const PlayedCall& early = call(1, 2, CallKind::kPull);
  EXPECT_FALSE(early.done());
  EXPECT_TRUE(call(0, 1, CallKind::kMoved, HandOver::kNo, 1).job.status.ok());
  const PlayedCall& late = call(0, 2, CallKind::kPull);
  ASSERT_TRUE(late.is_refused());
  EXPECT_EQ(late.job.answer.moved_to, 2u);
  EXPECT_EQ(late.job.answer.moves, 1u);
  EXPECT_TRUE(call(1, 2, CallKind::kPull, HandOver::kNo, 1).job.status.ok());
  EXPECT_TRUE(early.done());
  EXPECT_EQ(call(1, 2, CallKind::kFind).job.answer.verdict, Verdict::kDone);
  EXPECT_EQ(farewell(0), Verdict::kDone);
}

// It comes while a shard is on its way. The server where it arrives has never seen the others push.
TEST_F(Handover, ALateWorkerHasAsManyUpdatesAsTheOthers) {
  make(Mode::kSsp);
  constexpr uint64_t kPushes = 5;
  for (uint64_t i = 0; i < kPushes; ++i) {
    for (const int worker : {0, 1, 2}) EXPECT_TRUE(call(0, worker, CallKind::kPush).done());
  }
  servers_[0]->leave();
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  for (const auto& server : servers_) ASSERT_TRUE(server->admit(7, "").ok());
  EXPECT_TRUE(call(1, 1, CallKind::kRestore, HandOver::kYes, 1, &taken).job.status.ok());
  EXPECT_TRUE(call(0, 1, CallKind::kMoved, HandOver::kNo, 1).job.status.ok());
  const PlayedCall& first = call(1, 7, CallKind::kPush, HandOver::kNo, 1);
  EXPECT_TRUE(first.done());
  EXPECT_EQ(first.job.answer.steps, kPushes + 1);
}

TEST_F(Handover, AnotherWorkerTakesWhatADeadOneHad) {
  make(Mode::kAsync);
  servers_[0]->leave();
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_TRUE(call(1, 1, CallKind::kRestore, HandOver::kYes, 1, &taken).job.status.ok());
  servers_[0]->dismiss(1, true);
  const PlayedCall& again = call(0, 2, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_EQ(again.job.answer.verdict, Verdict::kDone);
  EXPECT_EQ(again.job.answer.moves, 2u);
  EXPECT_TRUE(call(1, 2, CallKind::kRestore, HandOver::kYes, 2, &again).job.status.ok());
  EXPECT_FALSE(call(1, 0, CallKind::kPull, HandOver::kNo, 1).done()) << "that copy is void";
  EXPECT_TRUE(call(1, 0, CallKind::kPull, HandOver::kNo, 2).done());
}

TEST_F(Handover, WhoLeavesTakesNoShardUnlessItMustStay) {
  make(Mode::kAsync);
  for (const auto& server : servers_) server->leave();
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_TRUE(call(1, 1, CallKind::kRestore, HandOver::kYes, 1, &taken).is_refused());
  EXPECT_EQ(call(0, 1, CallKind::kAdopt, HandOver::kKeep, 1).job.answer.verdict, Verdict::kDone);
  EXPECT_FALSE(servers_[0]->is_leaving());
  EXPECT_TRUE(call(0, 2, CallKind::kPull).job.status.ok()) << "it has its shard again";
  EXPECT_EQ(farewell(2), Verdict::kFailed) << "it stays";
}

TEST_F(Handover, WhoHasLetAWorkerGoCannotStay) {
  make(Mode::kAsync);
  servers_[1]->leave();
  Verdict verdict = Verdict::kDone;
  EXPECT_TRUE(servers_[1]->farewell(2, verdict).ok());
  EXPECT_EQ(verdict, Verdict::kDone) << "it holds no shard";
  servers_[0]->leave();
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_TRUE(call(1, 1, CallKind::kRestore, HandOver::kKeep, 1, &taken).is_refused());
  EXPECT_TRUE(servers_[1]->is_leaving());
}

TEST_F(Handover, AServerThatStaysSharesAShardOnce) {
  make(Mode::kSync);
  const PlayedCall& open = call(0, 0, CallKind::kPushPull);
  constexpr uint64_t kAllWorkers = 3;
  const auto share = [&](int worker, uint64_t workers) -> const PlayedCall& {
    PlayedCall& played = *played_.emplace_back(std::make_unique<PlayedCall>());
    played.job.worker = worker;
    played.job.call.kind = CallKind::kSnapshot;
    played.job.call.hand_over = HandOver::kShare;
    played.job.call.count = kShardNumbers;
    played.job.call.base = workers;
    played.job.result = played.memory.data();
    servers_[0]->submit(played.job);
    return played;
  };
  EXPECT_EQ(share(1, kAllWorkers - 1).job.status.code(), Code::kAborted) << "a worker does not reach the newcomer";
  EXPECT_FALSE(open.done());
  EXPECT_EQ(share(1, kAllWorkers).job.answer.verdict, Verdict::kWait);
  EXPECT_TRUE(open.is_refused());
  EXPECT_EQ(share(2, kAllWorkers).job.answer.verdict, Verdict::kWait) << "worker 1 takes it";
  EXPECT_EQ(call(0, 2, CallKind::kSnapshot, HandOver::kYes).job.answer.verdict, Verdict::kWait);
  const PlayedCall& taken = call(0, 1, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_EQ(taken.job.answer.moves, 1u);
  servers_[0]->dismiss(1, true);  // another one goes on
  const PlayedCall& again = call(0, 2, CallKind::kSnapshot, HandOver::kYes);
  EXPECT_EQ(again.job.answer.moves, 2u);
  EXPECT_TRUE(call(1, 2, CallKind::kRestore, HandOver::kYes, 2, &again).job.status.ok());
  EXPECT_TRUE(call(0, 2, CallKind::kMoved, HandOver::kNo, 2).job.status.ok());
  EXPECT_EQ(share(0, kAllWorkers).job.answer.moved_to, 2u);
  EXPECT_EQ(farewell(0), Verdict::kFailed) << "it stays";
}

TEST_F(Handover, AShardThatCouldNotBeBroughtGoesBack) {
  make(Mode::kAsync);
  PlayedCall& shared = call(0, 1, CallKind::kSnapshot, HandOver::kNo);  // only for its memory
  shared.job.done = false;
  shared.job.answer = {};
  shared.job.call.hand_over = HandOver::kShare;
  shared.job.call.base = 3;
  servers_[0]->submit(shared.job);
  EXPECT_TRUE(call(0, 2, CallKind::kPull).is_refused());
  EXPECT_EQ(call(0, 2, CallKind::kAdopt, HandOver::kYes).job.answer.verdict, Verdict::kWait) << "worker 1 has it";
  EXPECT_EQ(call(0, 1, CallKind::kAdopt, HandOver::kYes).job.answer.verdict, Verdict::kDone);
  EXPECT_TRUE(call(0, 2, CallKind::kPull).job.status.ok());
}

}  // namespace
}  // namespace braid::testing
