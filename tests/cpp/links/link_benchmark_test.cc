// SPDX-License-Identifier: Apache-2.0
// Groups over several hosts learn what joins them, all the same.
#include "links/link_benchmark.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "communicator/ranks.h"

namespace braid::testing {
namespace {

using Rates = std::vector<double>;

TEST(WithoutNoise, EqualRatesStay) {
  EXPECT_EQ(without_noise({100, 100, 100}), Rates({100, 100, 100}));
  EXPECT_EQ(without_noise({5}), Rates({5}));
}

TEST(WithoutNoise, RatesThatAreCloseBecomeTheirMean) {
  EXPECT_EQ(without_noise({96, 100, 98}), Rates({98, 98, 98}));
  EXPECT_EQ(without_noise({89, 100}), Rates({94.5, 94.5}));
}

TEST(WithoutNoise, RatesThatDifferStayApart) {
  EXPECT_EQ(without_noise({100, 87}), Rates({100, 87}));
  EXPECT_EQ(without_noise({10, 1000, 100}), Rates({10, 1000, 100}));
  EXPECT_EQ(without_noise({48, 1000, 52, 1000, 50}), Rates({50, 1000, 50, 1000, 50}));
}

// Close to the fastest of their own group: others in between make no chain of them.
TEST(WithoutNoise, GroupsDoNotGrowByTheirMembers) {
  EXPECT_EQ(without_noise({100, 92, 84, 80}), Rates({96, 96, 82, 82}));
}

TEST(WithoutNoise, WhatWasNotMeasuredStaysSo) {
  EXPECT_EQ(without_noise({0, 100, 0, 98}), Rates({0, 99, 0, 99}));
  EXPECT_EQ(without_noise({0, 0}), Rates({0, 0}));
  EXPECT_EQ(without_noise({}), Rates({}));
}

using Hosts = std::vector<std::string>;

class OnHosts : public ::testing::TestWithParam<std::pair<Hosts, std::string>> {
 protected:
  static const Hosts& hosts() { return GetParam().first; }
  static int ranks() { return static_cast<int>(hosts().size()); }

  static Options options() {
    Options options = options_for({"all", "shm,tcp", true});
    options.links = GetParam().second;
    return options;
  }
  static Result<std::shared_ptr<Communicator>> form(const Place& place, const std::string& name) {
    Place here = place;
    here.options.host = hosts()[static_cast<size_t>(place.rank)];
    return here.form(name);
  }
  // The operation and the prediction: equal where the links are, to the last bit.
  static std::pair<std::string, double> choice(Communicator& group, int64_t bytes) {
    const auto told = group.explain(CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, bytes);
    EXPECT_TRUE(told.ok()) << told.status().message();
    if (!told.ok()) return {};
    return {told.value().algorithm + ": " + told.value().reason, told.value().predicted_s};
  }
  static void expect_sum(Communicator& group, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000) + static_cast<float>(group.rank());
    const Status status = run(group, all_reduce(values));
    ASSERT_TRUE(status.ok()) << status.message();
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto first = static_cast<float>(i % 1000);
      wrong += values[i] != static_cast<float>(ranks()) * first + static_cast<float>(ranks() * (ranks() - 1) / 2);
    }
    EXPECT_EQ(wrong, 0u) << "of " << count;
  }
};

TEST_P(OnHosts, AllRanksLearnTheSameAndGroupsAfterThemToo) {
  constexpr int64_t kBytes = 16 << 20;
  std::vector<std::vector<std::pair<std::string, double>>> told(static_cast<size_t>(ranks()));
  at_all_places(ranks(), options(), [&](const Place& place) {
    for (const char* name : {"first", "second"}) {
      auto group = form(place, name);
      ASSERT_TRUE(group.ok()) << group.status().message();
      for (const int64_t bytes : {int64_t{1024}, kBytes}) {
        told[static_cast<size_t>(place.rank)].push_back(choice(*group.value(), bytes));
      }
      for (const size_t count : {size_t{1}, size_t{1009}, static_cast<size_t>(kBytes) / sizeof(float)}) {
        expect_sum(*group.value(), count);
      }
      group.value()->shutdown();
    }
  });
  for (const auto& of_rank : told) {
    EXPECT_EQ(of_rank, told[0]);
    ASSERT_EQ(of_rank.size(), 4u);
    for (const size_t i : {0, 1}) EXPECT_EQ(of_rank[i], of_rank[i + 2]) << "the second group";
  }
}

// Whatever other ranks remember, of hosts they share or not, the first rank's word counts.
TEST_P(OnHosts, RanksThatRememberOtherwiseLearnTheSame) {
  const Node last = ranks() - 1;
  for (const Node without : {0, last}) {
    std::vector<std::pair<std::string, double>> told(static_cast<size_t>(ranks()));
    at_all_places(ranks(), options(), [&](const Place& place) {
      if (place.rank != without) {
        Place here = place;
        here.rank -= without == 0;
        --here.ranks;
        here.options.host = hosts()[static_cast<size_t>(place.rank)];
        auto some = here.form("some");
        ASSERT_TRUE(some.ok()) << some.status().message();
        std::vector<float> values(300'000, 1.0f);
        const Status status = run(*some.value(), all_reduce(values));
        EXPECT_TRUE(status.ok()) << status.message();
        const auto right = static_cast<float>(here.ranks);
        EXPECT_TRUE(std::all_of(values.begin(), values.end(), [&](float value) { return value == right; }));
        some.value()->shutdown();
      }
      auto whole = form(place, "whole");
      ASSERT_TRUE(whole.ok()) << whole.status().message();
      told[static_cast<size_t>(place.rank)] = choice(*whole.value(), 16 << 20);
      expect_sum(*whole.value(), 300'000);
      whole.value()->shutdown();
    });
    for (const auto& of_rank : told) EXPECT_EQ(of_rank, told[0]) << "without rank " << without << " first";
  }
}

INSTANTIATE_TEST_SUITE_P(Measured, OnHosts,
                         ::testing::Values(std::pair(Hosts{"a", "a", "b", "b"}, "measure"),
                                           std::pair(Hosts{"a", "b", "c"}, "measure"),
                                           std::pair(Hosts{"a", "b", "a", "b"}, "measure")));
INSTANTIATE_TEST_SUITE_P(Assumed, OnHosts,
                         ::testing::Values(std::pair(Hosts{"a", "a", "b", "b"}, "assume"),
                                           std::pair(Hosts{"a", "b", "c"}, "assume"),
                                           std::pair(Hosts{"a", "b", "a", "b"}, "assume")));

TEST(LinkBenchmark, RanksThatWouldLearnOtherwiseAreNamed) {
  at_all_places(2, options_for(wires()[2]), [](const Place& place) {
    Place here = place;
    here.options.host = place.rank == 0 ? "a" : "b";
    here.options.links = place.rank == 0 ? "measure" : "assume";
    const auto group = here.form("test");
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kMismatch) << group.status().message();
    EXPECT_TRUE(says(group.status(), "BRAID_LINKS differs: rank ")) << group.status().message();
    EXPECT_TRUE(says(group.status(), "\"assume\"")) << group.status().message();
  });
}

}  // namespace
}  // namespace braid::testing
