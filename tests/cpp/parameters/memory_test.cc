// SPDX-License-Identifier: Apache-2.0
// How much memory a server needs, and that it uses no more than it may.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "parameters/memory_needs.h"
#include "parameters/one_server.h"
#include "parameters/placement.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

TEST(MemoryBudget, GivesAllOrNothing) {
  MemoryBudget budget(10);
  EXPECT_TRUE(budget.take(6));
  EXPECT_FALSE(budget.take(5));
  EXPECT_EQ(budget.left(), 4u);
  EXPECT_TRUE(budget.take(4));
  budget.give_back(6);
  EXPECT_EQ(budget.left(), 6u);
}

TEST(MemoryShare, TakesOnlyWhatWasNotPromised) {
  const auto budget = std::make_shared<MemoryBudget>(10);
  {
    MemoryShare share(budget, 100);
    EXPECT_TRUE(share.reach(100));
    EXPECT_EQ(budget->left(), 10u);
    EXPECT_TRUE(share.reach(107));
    EXPECT_FALSE(share.reach(111));
    EXPECT_EQ(budget->left(), 3u);
    EXPECT_TRUE(share.reach(50));
    EXPECT_TRUE(share.reach(107));
    EXPECT_EQ(budget->left(), 3u) << "what was taken is its own";
  }
  EXPECT_EQ(budget->left(), 10u);
  EXPECT_TRUE(MemoryShare(nullptr, 0).reach(UINT64_MAX));
}

ServerOptions options_of(const char* rule, Mode mode = Mode::kAsync) {
  ServerOptions options;
  options.rule = rule_from_text(rule).value();
  options.mode = mode;
  return options;
}

// In vectors of 1000 numbers, without what a hand-over adds.
uint64_t vectors_needed(const ServerOptions& options, size_t workers, bool has_copy = false) {
  constexpr size_t kNumbers = 1000;
  const Holding holding{kNumbers, true, has_copy};
  const uint64_t wholes = kWholeBuffers + kRestoreBuffers + (options.replicas > 0 ? 2 : 0) + (has_copy ? 1 : 0);
  const uint64_t more = wholes * whole_floats(options, 0) * sizeof(float);
  const uint64_t bytes = bytes_needed(options, kNumbers, {&holding, 1}, workers) - more;
  EXPECT_EQ(bytes % (kNumbers * sizeof(float)), 0u);
  return bytes / (kNumbers * sizeof(float));
}

TEST(MemoryNeeds, CountAllThatAServerKeeps) {
  EXPECT_EQ(vectors_needed(options_of("sgd"), 3), 4u + 3 + 1) << "four updates, three whole shards, the values";
  EXPECT_EQ(vectors_needed(options_of("adam"), 3), 4u + 3 * 3 + 3);
  EXPECT_EQ(vectors_needed(options_of("sgd", Mode::kSync), 3), 4u + 3 + 2) << "the sum of a round";
  EXPECT_EQ(vectors_needed(options_of("sgd", Mode::kQuorum), 3), 4u + 3 + 2);
  EXPECT_EQ(vectors_needed(options_of("sgd:compensates"), 3), 4u + 3 + 1 + 3) << "what each worker has read";
  ServerOptions replicated = options_of("sgd:momentum");
  replicated.replicas = 1;
  EXPECT_EQ(vectors_needed(replicated, 3, true), 4u + 3 * 2 + 2 * 2 + 2 + 2);
}

TEST(MemoryNeeds, OfAPartAreNoLessThanThoseOfItsShards) {
  for (const size_t elements : {1u, 15u, 1000u, 40u << 20}) {
    for (const size_t servers : {1u, 2u, 3u, 7u}) {
      ServerOptions options = options_of("adam");
      const ServerNeeds needs = needs_of(options, elements, servers, 0, 4);
      const size_t pieces = pieces_of(elements, servers);
      const auto extents = place(elements, servers * pieces, {}).value();
      options.buffers *= static_cast<int>(pieces);
      size_t most = 0;
      for (const Extent& extent : extents) most = std::max(most, extent.count);
      for (size_t server = 0; server < servers; ++server) {
        std::vector<Holding> shards;
        for (size_t piece = 0; piece < pieces; ++piece) {
          shards.push_back({extents[server * pieces + piece].count, true, false});
        }
        EXPECT_LE(bytes_needed(options, most, shards, 4), needs.in_all) << elements << " " << servers;
      }
      EXPECT_LE(bytes_needed(options, most, {}, 4), needs.whatever_it_holds);
      EXPECT_LT(needs.whatever_it_holds, needs.in_all);
    }
  }
}

class Memory : public OneServer {
 protected:
  // The server may use what it needs without a shard, and `more` bytes.
  void make(const char* rule, int workers, uint64_t more) {
    ServerOptions options = options_of(rule);
    budget_ = options.budget = std::make_shared<MemoryBudget>(more);
    options.promised_bytes = bytes_needed(options, kCount, {}, 1);
    options.promised_workers = static_cast<size_t>(workers);
    OneServer::make(options, workers);
  }
  Job& ask(int worker, CallKind kind, uint64_t moves = 1) {
    return call_with(worker, kind, 0,
                     [&](Call& call) {
                       call.steps = kWholeValues;
                       call.moves = moves;
                     })
        .job;
  }

  std::shared_ptr<MemoryBudget> budget_;
};

TEST_F(Memory, AShardThatDoesNotFitIsRefusedForAllWorkers) {
  make("sgd", 2, kCount * sizeof(float) - 1);
  const Job& first = ask(0, CallKind::kAdopt);
  EXPECT_EQ(first.answer.has_moved, kLacksMemory);
  EXPECT_EQ(first.status.message(), "it has no memory for shard 0 of 4 numbers");
  budget_->give_back(1);
  EXPECT_EQ(ask(1, CallKind::kAdopt).answer.has_moved, kLacksMemory) << "the first one went elsewhere";
  EXPECT_EQ(ask(1, CallKind::kAdopt, 2).answer.verdict, Verdict::kWait) << "another loss";
}

TEST_F(Memory, OfAShardThatFitsIsSetApart) {
  make("sgd", 2, kCount * sizeof(float));
  for (const int worker : {0, 1}) ask(worker, CallKind::kFind);
  EXPECT_EQ(ask(0, CallKind::kAdopt).answer.verdict, Verdict::kWait);
  EXPECT_EQ(budget_->left(), 0u);
  EXPECT_EQ(ask(1, CallKind::kAdopt).answer.verdict, Verdict::kWait);
  EXPECT_EQ(ask(0, CallKind::kAdopt).answer.verdict, Verdict::kSend);
  EXPECT_TRUE(ask(0, CallKind::kInstall).status.ok());
  EXPECT_EQ(ask(1, CallKind::kAdopt).answer.verdict, Verdict::kDone);
  server_.reset();
  EXPECT_EQ(budget_->left(), kCount * sizeof(float));
}

TEST_F(Memory, AnotherServersShardAndItsCopyAreRefused) {
  make("sgd", 1, kCount * sizeof(float) - 1);
  const auto brought = [&](int worker, CallKind kind, uint64_t moves) -> Job& {
    Played& played = *played_.emplace_back(std::make_unique<Played>());
    played.update.resize(whole_floats(options_of("sgd"), kCount));
    played.job.worker = worker;
    played.job.call = {.kind = kind, .hand_over = HandOver::kYes, .count = kCount, .moves = moves};
    played.job.update = played.update.data();
    server_->submit(played.job);
    return played.job;
  };
  EXPECT_EQ(brought(0, CallKind::kRestore, 1).answer.has_moved, kLacksMemory);
  ASSERT_TRUE(server_->admit(source_number(1), "same").ok());
  EXPECT_EQ(brought(source_number(1), CallKind::kReplica, 0).answer.has_moved, kLacksMemory);
  budget_->give_back(1);
  EXPECT_TRUE(brought(0, CallKind::kRestore, 1).status.ok());
  EXPECT_EQ(server_->stats().bytes, kCount * sizeof(float));
}

TEST_F(Memory, OneWorkerMoreIsRefusedWhereEachNeedsSome) {
  make("sgd:compensates", 2, kCount * sizeof(float) * 4);
  install(1);
  EXPECT_TRUE(server_->admit(7, "same").ok());
  const Status refused = server_->admit(8, "same");
  EXPECT_EQ(refused.message(),
            "it has no memory for one worker more than the 3 that are here: give it more with --memory");
  server_->dismiss(1, false);
  EXPECT_TRUE(server_->admit(8, "same").ok());
}

// As many as there are buffers for whole shards are answered at a time.
TEST_F(Memory, SnapshotsWaitForEachOther) {
  make("sgd", 3, 1000);
  install(1);
  RemoteJobs jobs(*server_);
  std::vector<Job*> snapshots;
  for (const int worker : {0, 1, 2}) {
    server_->submit(*snapshots.emplace_back(&jobs.of(worker, CallKind::kSnapshot)));
  }
  EXPECT_TRUE(snapshots[0]->done.load());
  EXPECT_TRUE(snapshots[1]->done.load());
  EXPECT_FALSE(snapshots[2]->done.load());
  server_->release(*snapshots[0]);
  EXPECT_TRUE(snapshots[2]->done.load());
  server_->release(*snapshots[1]);
  server_->release(*snapshots[2]);
}

TEST_F(Memory, RestoresThatWaitForAHandOverLeaveMemoryForIt) {
  make("sgd", 3, 1000);
  RemoteJobs jobs(*server_);
  const auto gets_whole = [&](Job& job) {
    job.whole = server_->acquire_whole(job);
    return job.whole != nullptr;
  };
  Job& restore = jobs.of(0, CallKind::kRestore);
  EXPECT_TRUE(gets_whole(restore));
  EXPECT_FALSE(gets_whole(jobs.of(1, CallKind::kRestore)));
  Job& hand_over = jobs.of(2, CallKind::kRestore);
  hand_over.call.hand_over = HandOver::kYes;
  EXPECT_TRUE(gets_whole(hand_over));
  server_->release(restore);
  server_->release(hand_over);
}

class MemoryOnWires : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, MemoryOnWires, ::testing::ValuesIn(wires()), wire_name);

// All workers push, pull, take snapshots and restore them at once.
TEST_P(MemoryOnWires, IsNeverMoreThanWasPromised) {
  constexpr size_t kElements = 200'000;
  constexpr int kWorkers = 6;
  ServerOptions asked = options_of("sgd:momentum");
  const uint64_t promised = needs_of(asked, kElements, 1, 0, kWorkers).in_all;
  std::atomic<uint64_t> most{0};
  std::atomic<int> ended{0};
  on_all_members(
      kWorkers + 1, options(),
      [&](const Place& place) { return setup_alone(place, kElements, kWorkers, 1, Mode::kAsync); },
      [&](const Place& place, ParameterService& service) {
        if (place.rank == kWorkers) {
          while (ended.load() < kWorkers) {
            most = std::max<uint64_t>(most, service.stats().server.bytes);
            std::this_thread::yield();
          }
          return;
        }
        const std::vector<float> update(kElements, 1.0f);
        std::vector<float> values(kElements);
        std::vector<float> saved(2 * kElements);
        if (place.rank == 0) {
          EXPECT_TRUE(outcome(service, service.install(update.data())).ok());
        }
        for (int i = 0; i < 10; ++i) {
          const auto push = service.push(update.data(), values.data(), momentum_table(kElements), 1, nullptr);
          const auto snapshot = service.snapshot(saved.data());
          EXPECT_TRUE(outcome(service, push).ok());
          EXPECT_TRUE(outcome(service, snapshot).ok());
          EXPECT_TRUE(outcome(service, service.restore(saved.data(), {1})).ok());
        }
        ++ended;
      });
  EXPECT_LE(most.load(), promised);
  EXPECT_GT(most.load(), promised / 4);
}

}  // namespace
}  // namespace braid::testing
