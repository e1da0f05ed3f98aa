// SPDX-License-Identifier: Apache-2.0
// When replans are due, and what comes of them; replan_test.cc has those of whole groups.
#include <gtest/gtest.h>

#include "aggregator/measured_group.h"
#include "aggregator/two_ranks.h"
#include "group/replan.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

Options assumed_links(std::shared_ptr<Store> servers) {
  Options options;
  options.timeout = limit(milliseconds(40'000));
  options.links = "assume";
  options.servers = std::move(servers);
  options.await_servers = options.servers ? 0 : -1;
  return options;
}

struct Parts {
  explicit Parts(TwoRanks::Rank& own)
      : choice(own.member, own.wires, own.mailbox, own.statistics),
        aggregators(own.member, own.mailbox, own.statistics, own.timeout,
                    {.form = [this](const std::shared_ptr<Store>&, int, const std::string&,
                                    const Options&) -> Result<std::shared_ptr<MeasuredGroup>> {
                       return std::shared_ptr<MeasuredGroup>(fake);
                     },
                     .alone = [](DType, ReduceOp, int64_t) { return AggregatorGroup::Alone{}; },
                     .changed = [this] { replanner.traffic_changed(); }}),
        replanner(own.member, own.wires, own.mailbox, choice, aggregators) {}

  void begin() {
    Status status = choice.learn(false, Clock::now() + milliseconds(20'000));
    if (status.ok()) status = replanner.begin({});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Which of `count` all_reduces of so many bytes have a replan before them: ".." or ".!".
  std::string due_before(int count, size_t bytes) {
    std::vector<float> values(bytes / sizeof(float));
    std::string due;
    for (int i = 0; i < count; ++i) due += replanner.is_due(all_reduce(values)) ? "!" : ".";
    return due;
  }

  std::shared_ptr<FakeGroup> fake = std::make_shared<FakeGroup>();
  AlgorithmChoice choice;
  AggregatorGroup aggregators;
  Replanner replanner;
};

class ReplannerTest : public ::testing::Test {
 protected:
  void begin() {
    TwoRanks::on_both([&](Node rank) {
      parts_[rank].emplace(two_[rank]);
      parts_[rank]->begin();
    });
  }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  TwoRanks two_{assumed_links(store_)};
  std::optional<Parts> parts_[2];
};

constexpr size_t kMiB = size_t{1} << 20;

TEST_F(ReplannerTest, IsDueAfterFourLargeSumsOfEightMebibytes) {
  begin();
  Parts& first = *parts_[0];
  EXPECT_EQ(first.due_before(10, 2 * kMiB), "....!...!.");
  EXPECT_EQ(first.due_before(3, 2 * kMiB), "..!");  // the two that were counted before count
}

TEST_F(ReplannerTest, CountsBytesOfSmallerSumsToo) {
  begin();
  EXPECT_EQ(parts_[0]->due_before(18, kMiB / 2), std::string(16, '.') + "!.");
}

TEST_F(ReplannerTest, CountsNeitherSmallSumsNorOtherOperations) {
  begin();
  Parts& first = *parts_[0];
  EXPECT_EQ(first.due_before(60, kMiB / 4 - 4), std::string(60, '.'));
  std::vector<float> values(kMiB);
  Operation other = all_reduce(values);
  other.kind = CollectiveKind::kBroadcast;
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(first.replanner.is_due(other));
  EXPECT_EQ(first.due_before(4, 4 * kMiB), "....");
  EXPECT_TRUE(first.replanner.is_due(other));  // before whatever comes next
}

TEST(NoReplan, IsDueWhereNothingMayChange) {
  TwoRanks two(assumed_links(nullptr));
  Parts parts(two[0]);
  parts.begin();
  EXPECT_EQ(parts.due_before(8, 4 * kMiB), "........");
}

TEST_F(ReplannerTest, TakesInAnAggregatorOnAllRanks) {
  begin();
  Candidacy candidacy(store_);
  ASSERT_TRUE(candidacy.offer().ok());
  std::thread candidate([&] {
    Appointment place;
    EXPECT_TRUE(candidacy.await(Clock::now() + milliseconds(20'000), &place).ok());
  });
  TwoRanks::on_both([&](Node rank) {
    const Status status = parts_[rank]->replanner.replan(Clock::now() + milliseconds(20'000));
    EXPECT_TRUE(status.ok()) << status.message();
  });
  candidate.join();
  for (const auto& parts : parts_) EXPECT_EQ(parts->aggregators.group(), parts->fake);
  parts_[0]->fake->passes = {3, 5};
  EXPECT_EQ(parts_[0]->replanner.seen_rates().up, 3);  // both groups use the same NIC
  EXPECT_EQ(parts_[0]->replanner.seen_rates().down, 5);
}

TEST_F(ReplannerTest, ATaskEndsWithItsReplanAndTellsOfItsFailure) {
  begin();
  two_[0].mailbox.fail_here({Code::kAborted, "over"});
  ReplanTask task(parts_[0]->replanner, two_[0].mailbox, two_[0].member.engine->bell(), kNoDeadline);
  const Deadline until = Clock::now() + milliseconds(20'000);
  auto step = task.advance(true);
  while (step != Task::Step::kDone && Clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
    step = task.advance(true);
  }
  EXPECT_EQ(step, Task::Step::kDone);
  EXPECT_TRUE(says(two_[0].mailbox.failure(), "over"));
}

}  // namespace
}  // namespace braid::testing
