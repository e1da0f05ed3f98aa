// SPDX-License-Identifier: Apache-2.0
// When ranks form an aggregator group, use it and end it. What it is made of is the test's; aggregator_test.cc has
// real ones.
#include "aggregator/aggregator_group.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "aggregator/measured_group.h"
#include "aggregator/two_ranks.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

Options options_with(std::shared_ptr<Store> store) {
  Options options;
  options.timeout = limit(milliseconds(40'000));
  options.servers = std::move(store);
  options.await_servers = 0;
  options.algorithm = "";
  return options;
}

// One rank's side, and what it was asked to form.
struct Side {
  Side(TwoRanks::Rank& own, bool can_form)
      : fake(std::make_shared<FakeGroup>()),
        aggregators(
            own.member, own.mailbox, own.statistics, own.timeout,
            {.form = [this, can_form](const std::shared_ptr<Store>&, int of_nodes, const std::string& named,
                                      const Options& with) -> Result<std::shared_ptr<MeasuredGroup>> {
               nodes = of_nodes;
               name = named;
               options = with;
               if (!can_form) return Status(Code::kTimeout, "nobody came");
               return std::shared_ptr<MeasuredGroup>(fake);
             },
             .alone = [this](DType, ReduceOp, int64_t) { return alone; },
             .changed = [this] { ++changes; }}) {}

  std::shared_ptr<FakeGroup> fake;
  AggregatorGroup::Alone alone{1.0, 0.0};
  int nodes = 0, changes = 0;
  std::string name;
  Options options;
  AggregatorGroup aggregators;
};

class AggregatorGroupTest : public ::testing::Test {
 protected:
  void follow_on_both(const std::string& decision) {
    TwoRanks::on_both([&](Node rank) {
      const Status status = sides_[rank]->aggregators.follow(decision);
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  void form(bool second_can = true) {
    sides_[0].emplace(two_[0], true);
    sides_[1].emplace(two_[1], second_can);
    follow_on_both("3 test/servers/ticket");
  }
  AggregatorGroup& first() { return sides_[0]->aggregators; }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  TwoRanks two_{options_with(store_)};
  std::optional<Side> sides_[2];
  std::vector<float> values_ = std::vector<float>(1024, 1);
};

TEST(NoAggregators, AreAskedForWithoutAStore) {
  TwoRanks two(options_with(nullptr));
  Side side(two[0], true);
  EXPECT_FALSE(side.aggregators.may_form());
  EXPECT_EQ(side.aggregators.decide(false), "go on");
  EXPECT_TRUE(side.aggregators.follow("go on").ok());
  EXPECT_EQ(side.aggregators.group(), nullptr);
  std::vector<float> values(4);
  EXPECT_EQ(side.aggregators.all_reduce_for(all_reduce(values), 1), nullptr);
}

TEST_F(AggregatorGroupTest, TakesInWhoWaitsAndPartsForMore) {
  sides_[0].emplace(two_[0], true);
  sides_[1].emplace(two_[1], true);
  EXPECT_EQ(first().decide(false), "go on");
  Candidacy candidacy(store_);
  ASSERT_TRUE(candidacy.offer().ok());
  Appointment place;
  std::thread candidate([&] {
    const auto answer = candidacy.await(Clock::now() + milliseconds(20'000), &place);
    EXPECT_TRUE(answer.ok() && answer.value() == Candidacy::Answer::kAppointed);
  });
  const std::string decision = first().decide(false);
  candidate.join();
  EXPECT_EQ(decision, "1 " + place.group);
  EXPECT_EQ(place.group.rfind("test/servers/", 0), 0u);
  EXPECT_EQ(place.ranks, 2);
  EXPECT_EQ(place.aggregators, 1);
  follow_on_both(decision);
  for (const auto& side : sides_) {
    EXPECT_EQ(side->aggregators.group(), side->fake);
    EXPECT_EQ(side->nodes, 3);
    EXPECT_EQ(side->name, place.group);
    EXPECT_EQ(side->changes, 1);
  }
  EXPECT_EQ(first().decide(false), "go on");  // nobody else has come
  Candidacy second(store_);
  ASSERT_TRUE(second.offer().ok());
  EXPECT_EQ(first().decide(false), "part");
  follow_on_both("part");
  EXPECT_EQ(first().group(), nullptr);
  EXPECT_EQ(sides_[0]->fake->aborted, "its ranks go on without aggregators");
  EXPECT_EQ(sides_[0]->changes, 2);
}

TEST_F(AggregatorGroupTest, FormsWithinAQuarterOfTheTimeoutThenHasAllOfIt) {
  form();
  const Options& asked = sides_[0]->options;
  constexpr milliseconds kMost{60'000};
  EXPECT_EQ(asked.timeout, std::min(limit(milliseconds(40'000)) / 4, kMost));
  EXPECT_EQ(asked.aggregators, 3);
  EXPECT_EQ(asked.servers, nullptr);
  EXPECT_EQ(asked.await_servers, -1);
  EXPECT_EQ(sides_[0]->fake->timeout, limit(milliseconds(40'000)));
  EXPECT_EQ(first().counters().sums.algorithm, "direct with 3 aggregators");
}

TEST_F(AggregatorGroupTest, IsNoneUnlessAllRanksAreInIt) {
  form(false);
  for (const auto& side : sides_) {
    EXPECT_EQ(side->aggregators.group(), nullptr);
    EXPECT_EQ(side->changes, 0);
  }
  EXPECT_EQ(sides_[0]->fake->shut_down, 1);  // what was formed is left again
}

TEST_F(AggregatorGroupTest, RefusesCountsThatNobodyDecides) {
  sides_[0].emplace(two_[0], true);
  for (const std::string decision : {"0 test", "-1 test", "65 test", "1"}) {
    EXPECT_EQ(first().follow(decision).code(), Code::kMismatch) << decision;
  }
  EXPECT_EQ(sides_[0]->nodes, 0);
}

TEST_F(AggregatorGroupTest, IsUsedWhereItIsFasterByMoreThanItsVoteCosts) {
  form();
  const auto is_used = [&] { return first().faster_for(DType::kFloat32, ReduceOp::kSum, 4096) != nullptr; };
  EXPECT_FALSE(is_used());  // it predicts nothing
  sides_[0]->fake->predicts_s = 0.5;
  EXPECT_TRUE(is_used());
  sides_[0]->fake->predicts_s = 0.97;  // it gains less than the model is off
  EXPECT_FALSE(is_used());
  sides_[0]->fake->predicts_s = 0.5;
  sides_[0]->alone.latency_s = 0.2;  // a vote takes four of them
  EXPECT_FALSE(is_used());
  sides_[0]->alone = {std::nullopt, 0};
  EXPECT_FALSE(is_used());
}

TEST_F(AggregatorGroupTest, CarriesExactAllReducesAlone) {
  form();
  sides_[0]->fake->predicts_s = 0.1;
  Operation lossy = all_reduce(values_);
  lossy.lossy = Lossy{};
  EXPECT_EQ(first().all_reduce_for(lossy, 1), nullptr);
  Operation other = all_reduce(values_);
  other.kind = CollectiveKind::kReduce;
  EXPECT_EQ(first().all_reduce_for(other, 1), nullptr);
  EXPECT_EQ(sides_[0]->fake->started, 0);
}

TEST_F(AggregatorGroupTest, IsLostByAVoteAndShutDownLater) {
  form();
  for (const auto& side : sides_) side->fake->predicts_s = 0.1;
  TwoRanks::on_both([&](Node rank) {
    std::vector<float> values(1024, 1);
    auto through = sides_[rank]->aggregators.all_reduce_for(all_reduce(values), 1);
    ASSERT_NE(through, nullptr);
    const Deadline until = Clock::now() + milliseconds(20'000);
    while (!through->advance() && Clock::now() < until) two_[rank].mailbox.poll();
    ASSERT_FALSE(through->carried());
    EXPECT_EQ(through->trouble().message(), "an aggregator is gone");
    sides_[rank]->aggregators.lose(through->trouble());
  });
  EXPECT_EQ(sides_[0]->fake->started, 4);  // an order for each of three, and the operation
  EXPECT_EQ(sides_[1]->fake->started, 1);
  EXPECT_EQ(first().group(), nullptr);
  EXPECT_EQ(sides_[0]->changes, 2);
  EXPECT_EQ(sides_[0]->fake->shut_down, 0);
  first().shut_down_ended();
  first().shut_down_ended();
  EXPECT_EQ(sides_[0]->fake->shut_down, 1);
  first().lose({});  // there is none to lose
  EXPECT_EQ(sides_[0]->changes, 2);
}

TEST(ForcedAlgorithm, IsNotReplacedByAggregators) {
  Options options = options_with(std::make_shared<MemoryStore>());
  options.algorithm = "ring";
  TwoRanks two(options);
  std::optional<Side> sides[2];
  TwoRanks::on_both([&](Node rank) {
    sides[rank].emplace(two[rank], true);
    EXPECT_TRUE(sides[rank]->aggregators.follow("1 test/servers/ticket").ok());
  });
  EXPECT_EQ(sides[0]->options.algorithm, "");  // in the aggregator group nothing is forced
  sides[0]->fake->predicts_s = 0.1;
  EXPECT_EQ(sides[0]->aggregators.faster_for(DType::kFloat32, ReduceOp::kSum, 4096), nullptr);
}

}  // namespace
}  // namespace braid::testing
