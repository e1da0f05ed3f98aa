// SPDX-License-Identifier: Apache-2.0
// Groups that aggregators have joined: large all_reduces go through them, and when they go nothing is lost.
#include <barrier>
#include <cstring>
#include <latch>
#include <map>

#include "aggregator/servers.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

// Small numbers, which all of these dtypes can hold and add up exactly.
std::vector<std::byte> small_numbers(DType dtype, Node rank, size_t elements) {
  std::vector<std::byte> bytes(elements * size_of(dtype));
  for (size_t i = 0; i < elements; ++i) {
    const auto number = static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3 + i / 1000) % 11);
    const auto put = [&](auto value) { std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value); };
    const auto real = static_cast<float>(number);
    switch (dtype) {
      case DType::kFloat64: put(static_cast<double>(number)); break;
      case DType::kFloat32: put(real); break;
      case DType::kInt32: put(int32_t{number - 5}); break;
      case DType::kUInt8: put(static_cast<uint8_t>(number)); break;
      default:  // bfloat16: the upper half of a float
        uint32_t word = 0;
        std::memcpy(&word, &real, sizeof word);
        put(static_cast<uint16_t>(word >> 16));
    }
  }
  return bytes;
}

// The all_reduce, in place or not; the result.
std::vector<std::byte> reduced(Communicator& group, DType dtype, ReduceOp op, size_t elements, bool in_place) {
  std::vector<std::byte> input = small_numbers(dtype, group.rank(), elements);
  std::vector<std::byte> output(in_place ? 0 : input.size());
  std::vector<std::byte>& into = in_place ? input : output;
  const Status status = run(group, {CollectiveKind::kAllReduce, dtype, op, 0, {input}, {into}});
  EXPECT_TRUE(status.ok()) << status.message();
  if (!in_place) EXPECT_EQ(input, small_numbers(dtype, group.rank(), elements)) << "the input was changed";
  return into;
}

struct Size {
  int ranks;
  int servers;
};
void PrintTo(const Size& size, std::ostream* out) { *out << size.ranks << " ranks, " << size.servers; }

class AggregatorGroups : public ::testing::TestWithParam<Size> {};

TEST_P(AggregatorGroups, GiveWhatAGroupWithoutThemGives) {
  const auto [ranks, servers] = GetParam();
  const bool expects_use = ranks > 2;  // two lose nothing to each other
  with_servers(ranks, servers, options_of_hosts(), [=](Scene& scene) {
    Place alone = scene.place;
    alone.options.servers = nullptr;
    alone.options.await_servers = -1;
    auto other = alone.form("alone");
    ASSERT_TRUE(other.ok()) << other.status().message();
    bool in_place = true;
    // Few, as a sanitizer takes its time over so many bytes.
    for (const auto& [dtype, op] :
         {std::pair(DType::kFloat32, ReduceOp::kSum), std::pair(DType::kBFloat16, ReduceOp::kAvg),
          std::pair(DType::kInt32, ReduceOp::kMax)}) {
      for (const size_t bytes : {(size_t{16} << 20) - 24, size_t{1} << 20, size_t{8}}) {
        const size_t elements = bytes / size_of(dtype);
        EXPECT_EQ(reduced(*scene.group, dtype, op, elements, in_place),
                  reduced(*other.value(), dtype, op, elements, in_place))
            << name_of(op) << " of " << elements << " " << name_of(dtype);
        in_place = !in_place;
      }
    }
    if (expects_use) EXPECT_GE(ways_of(*scene.group).through, 2u);
    EXPECT_GT(ways_of(*other.value()).besides, 5u);
    other.value()->shutdown();
  });
}

TEST_P(AggregatorGroups, CarryWhatIsLargeAndSayThatTheyWould) {
  const auto [ranks, servers] = GetParam();
  with_servers(ranks, servers, options_of_hosts(), [servers = servers](Scene& scene) {
    Communicator& group = *scene.group;
    const std::string named =
        "direct with " + std::to_string(servers) + (servers == 1 ? " aggregator" : " aggregators");
    for (const size_t bytes : {size_t{8}, size_t{1000}, size_t{10'000}, size_t{1} << 20, size_t{1} << 24}) {
      const Ways before = ways_of(group);
      const auto told = explain(group, "all_reduce", "int32", "sum", 0, static_cast<int64_t>(bytes));
      ASSERT_TRUE(told.ok()) << told.status().message();
      const bool through = told.value().reason.find("aggregator") != std::string::npos;
      EXPECT_FALSE(through && bytes < size_t{1} << 20) << told.value().reason;
      EXPECT_TRUE(through || bytes < size_t{1} << 24 || group.ranks() == 2) << told.value().reason;
      EXPECT_TRUE(sum_right(group, bytes / 4, 0).ok());
      EXPECT_EQ(ways_of(group).through - before.through, through ? 1u : 0u) << told.value().reason;
      EXPECT_EQ(ways_of(group).besides - before.besides, through ? 0u : 1u) << told.value().reason;
    }
    for (const OperationStats& row : group.stats()) {
      if (row.algorithm.find("aggregator") == std::string::npos) continue;
      EXPECT_EQ(row.algorithm, named);
      EXPECT_GE(row.min_bytes, size_t{1} << 20);
      EXPECT_EQ(row.max_bytes, size_t{1} << 24);
    }
    for (int kind = 0; kind < kCollectiveKindCount; ++kind) {  // all others go on as ever
      const Collective collective{static_cast<CollectiveKind>(kind), group.ranks(), 0};
      if (collective.kind == CollectiveKind::kBarrier) continue;
      Blocks blocks(collective, group.rank(), 300'000, false);
      const Status status = run(group, operation_on(blocks, collective));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(blocks.right()) << name_of(collective.kind);
    }
    EXPECT_TRUE(run(group, barrier()).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, AggregatorGroups, ::testing::Values(Size{2, 1}, Size{3, 2}, Size{4, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "With" + std::to_string(info.param.servers);
                         });

TEST(AggregatorGroup, GoesWithAnAggregatorThatStopsBetweenTwoSums) {
  std::barrier between(3);
  with_servers(3, 2, options_of_hosts(), [&](Scene& scene) {
    EXPECT_TRUE(sum_right(*scene.group, kLarge, 1).ok());
    EXPECT_EQ(ways_of(*scene.group).through, 1u);
    between.arrive_and_wait();
    if (scene.place.rank == 2) scene.servers.stop(1);
    between.arrive_and_wait();
    const auto begun = Clock::now();
    for (int round = 2; round < 4; ++round) {
      const Status status = sum_right(*scene.group, kLarge, round);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_LT(Clock::now() - begun, limit(milliseconds(10'000))) << "somebody slept until a deadline";
    EXPECT_EQ(ways_of(*scene.group).through, 1u);
    EXPECT_EQ(ways_of(*scene.group).besides, 2u);
  });
}

// Sums under way, in place and not, when one of the aggregators goes, at another moment each time.
TEST(AggregatorGroup, LosesNothingWithAnAggregatorThatStopsInTheMiddle) {
  for (const int delay_ms : {0, 10, 25, 40, 60}) {
    std::latch under_way(3);
    with_servers(3, 2, options_of_hosts(), [&](Scene& scene) {
      std::vector<std::vector<int32_t>> inputs, outputs;
      std::vector<Result<std::shared_ptr<Work>>> works;
      constexpr int kSums = 8;
      for (int round = 0; round < kSums; ++round) {
        inputs.push_back(summands(scene.place.rank, kLarge, round));
        outputs.emplace_back(round % 2 == 0 ? kLarge : 0);
      }
      under_way.arrive_and_wait();
      for (size_t round = 0; round < kSums; ++round) {
        auto& into = outputs[round].empty() ? inputs[round] : outputs[round];
        works.push_back(scene.group->start({CollectiveKind::kAllReduce,
                                            DType::kInt32,
                                            ReduceOp::kSum,
                                            0,
                                            {std::as_bytes(std::span(inputs[round]))},
                                            {std::as_writable_bytes(std::span(into))}},
                                           false));
      }
      if (scene.place.rank == 1) {
        std::this_thread::sleep_for(milliseconds(delay_ms));
        scene.servers.stop(0);
      }
      for (size_t round = 0; round < kSums; ++round) {
        const Status status = outcome(works[round]);
        ASSERT_TRUE(status.ok()) << status.message();
        const auto& result = outputs[round].empty() ? inputs[round] : outputs[round];
        EXPECT_TRUE(is_sum(result, 3, static_cast<int>(round))) << round;
      }
      EXPECT_TRUE(sum_right(*scene.group, kLarge, kSums).ok());  // at the latest this one begins without it
      const Ways ways = ways_of(*scene.group);
      EXPECT_EQ(ways.through + ways.besides, static_cast<uint64_t>(kSums) + 1);
      EXPECT_GT(ways.besides, 0u);
    });
  }
}

TEST(AggregatorGroup, TakesInAnAggregatorThatComesLater) {
  std::barrier between(3);
  with_servers(3, 0, options_of_hosts(), [&](Scene& scene) {
    EXPECT_FALSE(gets_through(*scene.group, 5));
    if (scene.place.rank == 1) {
      for (int i = 0; i < 2; ++i) scene.servers.start();
    }
    EXPECT_TRUE(gets_through(*scene.group, 100));
    between.arrive_and_wait();
    if (scene.place.rank == 0) scene.servers.start();  // another: all leave, and rendezvous again
    bool all_in = false;
    for (int round = 0; round < 200 && !all_in; ++round) {
      const Status status = sum_right(*scene.group, kLarge, round);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const OperationStats& row : scene.group->stats()) {
        all_in |= row.algorithm == "direct with 3 aggregators";
      }
    }
    EXPECT_TRUE(all_in);
  });
}

TEST(AggregatorGroup, TakesInOneThatHasComeBack) {
  std::barrier between(3);
  with_servers(3, 2, options_of_hosts(), [&](Scene& scene) {
    EXPECT_TRUE(gets_through(*scene.group, 1));
    between.arrive_and_wait();
    if (scene.place.rank == 0) {
      scene.servers.stop(0);
      scene.servers.start();
    }
    between.arrive_and_wait();
    EXPECT_TRUE(gets_through(*scene.group, 100));
    EXPECT_GT(ways_of(*scene.group).besides, 0u);
  });
}

TEST(AggregatorGroup, WhoIsAwaitedInVainIsDoneWithout) {
  Options options = options_of_hosts();
  options.timeout = milliseconds(8000);
  const auto store = std::make_shared<MemoryStore>();
  at_all_places(3, options, [&](const Place& place) {
    Place here = place;
    here.options.host = "rank " + std::to_string(place.rank);
    here.options.servers = store;
    here.options.await_servers = 1;
    auto group = here.form("test");
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_TRUE(sum_right(*group.value(), kLarge, 0).ok());
    EXPECT_EQ(ways_of(*group.value()).through, 0u);
    group.value()->shutdown();
  });
}

TEST(AggregatorGroup, AnAbortInTheMiddleReachesAllRanks) {
  for (Node aborting = 0; aborting < 3; ++aborting) {
    for (const bool inline_if_idle : {true, false}) {
      std::latch warm(3);
      with_servers(3, 2, options_of_hosts(), [&](Scene& scene) {
        EXPECT_TRUE(sum_right(*scene.group, kLarge, 0).ok());
        warm.arrive_and_wait();
        if (scene.place.rank == aborting) {  // the others' sum waits for this rank
          std::this_thread::sleep_for(milliseconds(30));
          scene.group->abort("enough");
        }
        const auto begun = Clock::now();
        const Status status = sum_right(*scene.group, kLarge, 1, inline_if_idle);
        EXPECT_LT(Clock::now() - begun, milliseconds(15'000));
        EXPECT_EQ(status.code(), Code::kAborted) << status.message();
        EXPECT_EQ(status.rank(), aborting) << status.message();
        EXPECT_TRUE(says(status, "enough")) << status.message();
        EXPECT_EQ(scene.group->failure().rank(), aborting);
      });
    }
  }
}

// The rank that is late is named although the others wait for it in another group, that of the aggregator group.
TEST(AggregatorGroup, ATimeoutInTheMiddleNamesTheRankThatNeverCalled) {
  std::latch told(3);
  with_servers(3, 2, options_of_hosts(), [&](Scene& scene) {
    EXPECT_TRUE(sum_right(*scene.group, kLarge, 0).ok());
    if (scene.place.rank != 2) {
      std::vector<int32_t> values(kLarge);
      Operation operation = all_reduce(values, DType::kInt32);
      operation.timeout = milliseconds(2000);
      const auto begun = Clock::now();
      const Status status = run(*scene.group, operation);
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_EQ(status.rank(), 2) << status.message();
      EXPECT_TRUE(says(status, "not there yet: rank 2")) << status.message();
      EXPECT_LT(Clock::now() - begun, milliseconds(15'000));
    }
    told.arrive_and_wait();
  });
}

TEST(AggregatorGroup, ShutdownsWaitForWhatIsStarted) {
  constexpr size_t kCount = kLarge / 8;  // shutdown() has little patience, and sanitizers are slow
  with_servers(3, 2, options_of_hosts(), [](Scene& scene) {
    std::vector<std::vector<int32_t>> values;
    std::vector<Result<std::shared_ptr<Work>>> works;
    for (int round = 0; round < 4; ++round) values.push_back(summands(scene.place.rank, kCount, round));
    for (auto& v : values) works.push_back(scene.group->start(all_reduce(v, DType::kInt32), false));
    if (scene.place.rank == 1) std::this_thread::sleep_for(milliseconds(50));
    scene.group->shutdown();
    for (size_t i = 0; i < values.size(); ++i) {
      const Status status = outcome(works[i]);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(is_sum(values[i], 3, static_cast<int>(i)));
    }
    EXPECT_EQ(scene.group->start(barrier(), true).status().code(), Code::kAborted);
  });
}

// What other threads of the process carry must wake who waits in its own.
TEST(AggregatorGroup, SumsInTheCallersThreadNeverSleepThroughTheirEnd) {
  with_servers(3, 2, options_of_hosts(), [](Scene& scene) {
    for (int round = 0; round < 30; ++round) {
      std::vector<int32_t> values(kLarge, 1);
      Operation operation = all_reduce(values, DType::kInt32);
      operation.timeout = limit(milliseconds(20'000));
      const auto begun = Clock::now();
      const Status status = run(*scene.group, operation);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_LT(Clock::now() - begun, limit(milliseconds(8000))) << round;
    }
  });
}

}  // namespace
}  // namespace braid::testing
