// SPDX-License-Identifier: Apache-2.0
// Replans between collectives, when ranks are far apart, and do other things besides.
#include <deque>

#include "aggregator/servers.h"

namespace braid::testing {
namespace {

constexpr size_t kElements = size_t{1} << 19;  // 2 MiB: a replan before every fourth
constexpr int kSums = 24;

// Many sums at once, each rank as late as it likes, with messages around the ring in between.
void sum_and_talk(Communicator& group, int ranks) {
  const Node rank = group.rank();
  std::deque<std::vector<int32_t>> values, letters, answers;
  std::vector<Result<std::shared_ptr<Work>>> works, messages;
  for (int round = 0; round < kSums; ++round) {
    if (round % 5 == rank) std::this_thread::sleep_for(milliseconds(15 * (rank + 1)));
    values.push_back(summands(rank, kElements, round));
    works.push_back(group.start(all_reduce(values.back(), DType::kInt32), false));
    letters.emplace_back(round % 2 == 0 ? 10 : 100'000, round);
    answers.emplace_back(letters.back().size());
    const auto tag = static_cast<uint32_t>(round % 3);
    messages.push_back(
        group.send((rank + 1) % ranks, tag, std::as_bytes(std::span(letters.back())), milliseconds(0)));
    messages.push_back(group.recv((rank + ranks - 1) % ranks, tag,
                                  std::as_writable_bytes(std::span(answers.back())), milliseconds(0)));
  }
  for (int round = 0; round < kSums; ++round) {
    const auto i = static_cast<size_t>(round);
    const Status status = outcome(works[i]);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(is_sum(values[i], ranks, round)) << round;
    for (const size_t message : {2 * i, 2 * i + 1}) EXPECT_TRUE(outcome(messages[message]).ok());
    EXPECT_EQ(answers[i], letters[i]);
  }
  for (int round = 0; round < 8; ++round) {  // in the callers' threads, with others in between
    EXPECT_TRUE(sum_right(group, kElements, round).ok());
    if (round % 3 == rank) {
      EXPECT_TRUE(explain(group, "all_reduce", "int32", "sum", 0, 4 * kElements).ok());
    }
    EXPECT_TRUE(run(group, barrier(), round % 2 == 0).ok());
  }
}

TEST(Replans, OfMeasuredLinksComeBetweenTheSameSums) {
  Options options = options_of_hosts();
  options.links = "measure";
  for (const int ranks : {2, 4}) {
    at_all_places(ranks, options, [&](const Place& place) {
      Place here = place;
      here.options.host = "rank " + std::to_string(place.rank);
      auto group = here.form("test");
      ASSERT_TRUE(group.ok()) << group.status().message();
      sum_and_talk(*group.value(), ranks);
      group.value()->shutdown();
    });
  }
}

TEST(Replans, ThatFindNobodyComeBetweenTheSameSums) {
  with_servers(3, 0, options_of_hosts(), [](Scene& scene) { sum_and_talk(*scene.group, 3); });
}

// While aggregators come and go.
TEST(Replans, ThatTakeInAggregatorsComeBetweenTheSameSums) {
  with_servers(3, 2, options_of_hosts(), [](Scene& scene) {
    for (int i = 0; i < 2; ++i) {
      if (scene.place.rank == 1) i == 0 ? scene.servers.start() : scene.servers.stop(0);
      sum_and_talk(*scene.group, 3);
    }
    EXPECT_TRUE(gets_through(*scene.group, 200));
  });
}

// A rank that leaves a replan in the lurch fails the group, and is named.
TEST(Replans, AreEndedByAFailure) {
  with_servers(3, 0, options_of_hosts(), [](Scene& scene) {
    if (scene.place.rank == 1) {
      for (int round = 0; round < 3; ++round) EXPECT_TRUE(sum_right(*scene.group, 4 * kElements, round).ok());
      std::this_thread::sleep_for(milliseconds(100));  // the others are in the replan
      scene.group->abort("enough");
      return;
    }
    Status status;
    const auto begun = Clock::now();
    for (int round = 0; round < 8 && status.ok(); ++round) status = sum_right(*scene.group, 4 * kElements, round);
    EXPECT_LT(Clock::now() - begun, milliseconds(8000));
    EXPECT_EQ(status.code(), Code::kAborted) << status.message();
    EXPECT_EQ(status.rank(), 1) << status.message();
  });
}

TEST(Replans, AreEndedByAShutdown) {
  std::atomic<int> over{0};
  with_servers(2, 0, options_of_hosts(), [&](Scene& scene) {
    const int sums = scene.place.rank == 0 ? 3 : 4;  // the fourth waits behind a replan that never begins
    std::vector<std::vector<int32_t>> values(4, std::vector<int32_t>(kLarge));
    std::vector<Result<std::shared_ptr<Work>>> works;
    for (size_t i = 0; i < static_cast<size_t>(sums); ++i) {
      works.push_back(scene.group->start(all_reduce(values[i], DType::kInt32), false));
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(outcome(works[i]).ok());
    const auto begun = Clock::now();
    scene.group->shutdown();
    EXPECT_LT(Clock::now() - begun, milliseconds(10'000));
    if (scene.place.rank == 1) EXPECT_FALSE(outcome(works[3]).ok());
    ++over;
  });
  EXPECT_EQ(over, 2);
}

}  // namespace
}  // namespace braid::testing
