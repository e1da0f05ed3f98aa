// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "planner/planners.h"
#include "schedule/text.h"
#include "support/every_algorithm.h"
#include "verify/verify.h"

namespace braid {
namespace {

VerifiedSchedule verified(const std::string& text) {
  Result<Schedule> schedule = schedule_from_text(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  Result<VerifiedSchedule> result = verify(schedule.value());
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.value();
}

VerifiedSchedule planned(CollectiveKind kind, const char* algorithm, int ranks) {
  return verify(find_algorithm(kind, algorithm)->plan({kind, ranks, 0}, {}).value()).value();
}

using Numbers = std::vector<int32_t>;

TEST(Facts, NumberMessagesFromSenderToReceiver) {
  VerifiedSchedule schedule = verified(
      "all_reduce x ranks=2 chunks=2\n"
      "r0\n  0: send i0 -> r1; reduce o1 = r1 + i1\n  1: send o1 -> r1; recv o0 <- r1\n"
      "r1\n  0: send i1 -> r0; reduce o0 = i0 + r0\n  1: recv o1 <- r0; send o0 -> r0\n");
  EXPECT_EQ(schedule.facts(0, 0, 0).message, Numbers{0});
  EXPECT_EQ(schedule.facts(0, 0, 1).message, (Numbers{0, -1}));
  EXPECT_EQ(schedule.facts(0, 1, 0).message, Numbers{1});
  EXPECT_EQ(schedule.facts(0, 1, 1).message, Numbers{1});
  EXPECT_EQ(schedule.facts(1, 0, 1).message, (Numbers{-1, 0}));
}

TEST(Facts, MarkTheReduceThatCompletes) {
  VerifiedSchedule ring = planned(CollectiveKind::kAllReduce, "ring", 4);
  for (Node node = 0; node < 4; ++node) {
    for (size_t round = 0; round < 6; ++round) {
      for (size_t step = 0; step < 2; ++step) {
        EXPECT_EQ(ring.facts(node, round, step).completes, round == 2 && step == 1);
      }
    }
  }
}

TEST(Facts, EveryReductionOfManyRanksCompletesOncePerOutputChunk) {
  testing::for_every_algorithm({2, 5, 8}, [](const Algorithm& algorithm, const Collective& collective) {
    if (!is_reduction(collective.kind)) return;
    Result<VerifiedSchedule> result = verify(algorithm.plan(collective, {}).value());
    const Schedule& schedule = result.value().schedule();
    std::set<int> completed;
    for (Node node = 0; node < collective.ranks; ++node) {
      for (size_t round = 0; round < schedule.programs[node].size(); ++round) {
        for (size_t step = 0; step < schedule.programs[node][round].size(); ++step) {
          if (!result.value().facts(node, round, step).completes) continue;
          const Ref& target = schedule.programs[node][round][step].target;
          int shift = collective.kind == CollectiveKind::kReduceScatter ? node : target.first;
          for (int k = 0; k < target.count; ++k) completed.insert(shift + k);
        }
      }
    }
    EXPECT_EQ(completed.size(), static_cast<size_t>(schedule.chunks)) << algorithm.name << collective.ranks;
  });
}

TEST(Digest, IsEqualForEqualSchedulesOnly) {
  std::set<uint64_t> digests;
  int count = 0;
  testing::for_every_algorithm({1, 2, 3, 4, 5}, [&](const Algorithm& algorithm, const Collective& collective) {
    Schedule schedule = algorithm.plan(collective, {}).value();
    uint64_t digest = verify(schedule).value().digest();
    EXPECT_EQ(digest, verify(schedule).value().digest());
    digests.insert(digest);
    ++count;
  });
  EXPECT_EQ(digests.size(), static_cast<size_t>(count));
  const Algorithm* direct = find_algorithm(CollectiveKind::kAllReduce, "direct");
  Collective two{CollectiveKind::kAllReduce, 2, 0};
  EXPECT_NE(verify(direct->plan(two, {{1, 2}}).value()).value().digest(),
            verify(direct->plan(two, {{2, 1}}).value()).value().digest());
}

// The digest goes over the wire: it may change only on purpose.
TEST(Digest, IsTheSameOnEveryMachine) {
  EXPECT_EQ(verified("broadcast x ranks=1 root=0 chunks=1\nr0\n  0: copy o0 = i0\n").digest(),
            11234247796074903956u);
}

}  // namespace
}  // namespace braid
