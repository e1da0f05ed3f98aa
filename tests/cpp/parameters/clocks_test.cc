// SPDX-License-Identifier: Apache-2.0
// Bounded staleness over several shards: workers that wake, and servers that are lost while a worker rests.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

constexpr size_t kOfEach = 2;  // numbers in a shard

// A worker's update on its way to one shard.
struct Part {
  Table table{{2 * kOfEach, with_rate(1)}};
  std::vector<float> update = std::vector<float>(kOfEach), result = std::vector<float>(kOfEach);
  Job job;
  bool done() const { return job.done.load(); }
};

class TwoShards : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.rule = rule_from_text("sgd").value();
    options.mode = Mode::kSsp;
    options.settings = "same";
    server_ = std::make_unique<Server>(options, std::vector<Extent>{{0, kOfEach}, {kOfEach, kOfEach}}, bell_);
    for (const int worker : {0, 1, 2}) ASSERT_TRUE(server_->admit(worker, "same").ok());
    for (const int shard : {0, 1}) ASSERT_TRUE(arrive(0, shard, CallKind::kInstall).done());
  }
  void TearDown() override { server_->close({Code::kAborted, "over"}); }

  // A call arrives at a shard. `number`: of the update; 0: the worker does not know it. Then `is_held`: the shard
  // counts by itself, and holds the worker as it would hold others.
  Part& arrive(int worker, int shard, CallKind kind, uint64_t number = 0, bool is_held = false) {
    Part& part = *parts_.emplace_back(std::make_unique<Part>());
    part.job.worker = worker;
    part.job.call.kind = kind;
    part.job.call.shard = static_cast<uint16_t>(shard);
    part.job.call.count = kOfEach;
    part.job.call.steps = number;
    part.job.call.place = is_push(kind) && number == 0 && !is_held ? 1 : 0;
    part.job.table = &part.table;
    part.job.update = part.update.data();
    part.job.result = part.result.data();
    server_->submit(part.job);
    return part;
  }
  Part& push(int worker, int shard, uint64_t number, bool is_held = false) {
    return arrive(worker, shard, CallKind::kPushPull, number, is_held);
  }
  // Worker 2 rests and wakes. Its update arrives at shard 1 before an update of the others, and at shard 0 after two.
  // Then the others wait for it at shard 1. Returns its part at shard 0, and the others' second parts at shard 1.
  std::array<Part*, 3> wake_between(bool is_held) {
    for (const int shard : {0, 1}) EXPECT_TRUE(arrive(2, shard, CallKind::kRest).done());
    Part& early = push(2, 1, 0, is_held);
    for (const int shard : {0, 1}) {
      Part& one = push(0, shard, 1);
      EXPECT_TRUE(push(1, shard, 1).done());
      EXPECT_TRUE(one.done());
    }
    EXPECT_TRUE(early.done());
    push(0, 0, 2);
    EXPECT_TRUE(push(1, 0, 2).done());
    Part& first = push(0, 1, 2);
    Part& second = push(1, 1, 2);
    EXPECT_FALSE(first.done() || second.done()) << "they are ahead of worker 2";
    return {&push(2, 0, 0, is_held), &first, &second};
  }

  DoorbellWord bell_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Part>> parts_;
};

// What would happen if each shard counted by itself: worker 2 is held at shard 0, and holds the others at shard 1.
TEST_F(TwoShards, ThatCountAloneWaitForEachOther) {
  for (const Part* part : wake_between(true)) EXPECT_FALSE(part->done());
}

TEST_F(TwoShards, LetAWorkerWakeBetweenTwoSteps) {
  const auto parts = wake_between(false);
  ASSERT_TRUE(parts[0]->done());
  const uint64_t number = parts[0]->job.answer.steps + 1;
  Part& next = push(2, 0, number);
  push(2, 1, number);
  EXPECT_TRUE(parts[1]->done() && parts[2]->done());
  EXPECT_FALSE(next.done()) << "now it is held like the others";
  for (uint64_t step = 3; step <= number; ++step) {
    for (const int worker : {0, 1}) {
      for (const int shard : {0, 1}) push(worker, shard, step);
    }
  }
  EXPECT_TRUE(next.done());
}

// ---- A server is lost while a worker rests

class RestsOverADeath : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, RestsOverADeath,
                         ::testing::Values(Mode::kRoundRobin, Mode::kSsp, Mode::kSync, Mode::kQuorum));

TEST_P(RestsOverADeath, NobodyWaitsForTheOneThatRests) {
  constexpr size_t kElements = 200;
  constexpr int kSteps = 10;
  std::atomic<int> rested{0};
  std::atomic<bool> is_gone{false}, is_over{false};
  at_all_places(3, options_for(wires()[0]), [&](const Place& place) {
    ServiceSetup setup = setup_of(place, kElements);
    setup.server.mode = GetParam();
    setup.server.quorum = {3, milliseconds(60'000)};
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values(kElements);
    const std::vector<float> update(kElements, 1.0f);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->install(values.data())).ok());
    }
    const auto step = [&] {
      const Status done =
          outcome(*service, service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr));
      ASSERT_TRUE(done.ok()) << done.message();
    };
    for (int i = 0; i < 3; ++i) step();
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->rest()).ok());
    }
    ++rested;
    while (rested.load() < 3) std::this_thread::yield();
    if (place.rank == 2) {
      service.reset();
      is_gone = true;
      return;
    }
    while (!is_gone.load()) std::this_thread::yield();
    if (place.rank == 1) {
      for (int i = 0; i < kSteps; ++i) step();
      EXPECT_EQ(service->stats().homes, (std::vector<int>{0, 1, 0}));
      is_over = true;
    }
    while (!is_over.load()) std::this_thread::sleep_for(milliseconds(1));
    service->close(milliseconds(20'000), {});
  });
}

}  // namespace
}  // namespace braid::testing
