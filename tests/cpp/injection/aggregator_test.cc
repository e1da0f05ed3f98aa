// SPDX-License-Identifier: Apache-2.0
// Memory is refused while aggregators add up for a group, one more joins it, and plans are made anew for that. Ranks go on
// without aggregators, or fail with the cause; the process lives, and its engines carry a fresh group.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstdio>

#include "aggregator/servers.h"
#include "base/log.h"
#include "injection/faults.h"
#include "injection/outcome.h"

namespace braid::testing {
namespace {

constexpr int kRanks = 3, kSums = 5;
constexpr size_t kPlaces = 10;  // BRAID_TEST_EVERY_FAULT=1: all there are

using Outcomes = std::array<Status, kRanks>;

Status sum_all(Communicator& group, std::vector<std::vector<int32_t>>& values) {
  for (int round = 0; round < kSums; ++round) {
    const Status ended =
        as_seen_by_user([&] { return run(group, all_reduce(values[static_cast<size_t>(round)], DType::kInt32)); });
    if (!ended.ok()) return ended;
    if (!is_sum(values[static_cast<size_t>(round)], kRanks, round)) return {Code::kInternal, "WRONG SUM"};
  }
  return {};
}

// Sums through an aggregator while a second one joins. With site 0 places are noted, and nothing is refused.
Outcomes sums_under(Site site) {
  Outcomes outcomes;
  std::barrier gate(kRanks);
  with_servers(kRanks, 1, options_of_hosts(), [&](Scene& scene) {
    const Node rank = scene.place.rank;
    std::vector<std::vector<int32_t>> values;
    for (int round = 0; round < kSums; ++round) values.push_back(summands(rank, kLarge, round));
    scene.servers.forgive();
    gate.arrive_and_wait();
    if (rank == 0) {
      scene.servers.start();
      site == 0 ? note_sites(Fault::kMemory) : arm_at(Fault::kMemory, site);
    }
    gate.arrive_and_wait();
    Status& ended = outcomes[static_cast<size_t>(rank)] = sum_all(*scene.group, values);
    if (!ended.ok()) give_up(*scene.group);
    gate.arrive_and_wait();
    if (rank == 0) disarm();
    gate.arrive_and_wait();
    Place alone = scene.place;
    alone.options.servers = nullptr;
    const auto fresh = alone.form("fresh");
    ASSERT_TRUE(fresh.ok()) << fresh.status().message();
    EXPECT_TRUE(sum_right(*fresh.value(), 1000, 1).ok());
    fresh.value()->shutdown();
  });
  return outcomes;
}

TEST(AggregatorInjection, RanksGoOnOrNameTheCause) {
  set_log_sink([](LogLevel, const char*) {});
  if (tries_every_place()) ::alarm(0);  // the watchdog has not that much patience
  for (const Status& ended : sums_under(0)) EXPECT_TRUE(ended.ok()) << ended.message();
  const std::vector<Site> sites = noted_sites();
  ASSERT_GT(sites.size(), kPlaces);
  const size_t step = tries_every_place() ? 1 : sites.size() / kPlaces;
  for (size_t i = 0; i < sites.size() && !HasFailure(); i += step) {
    bool failed = false, named = false;
    std::string where = "place " + std::to_string(i) + " of " + std::to_string(sites.size());
    for (const Status& ended : sums_under(sites[i])) {
      where += "\n  " + (ended.ok() ? "ok" : ended.message());
      failed |= !ended.ok();
      named |= !ended.ok() && names_cause(Fault::kMemory, ended.message());
      EXPECT_NE(ended.code(), Code::kTimeout) << where;
      EXPECT_FALSE(says(ended, "WRONG")) << where;
    }
    EXPECT_TRUE(named || !failed) << "nobody names the cause: " << where;
  }
  std::printf("  %zu places\n", sites.size());
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace braid::testing
