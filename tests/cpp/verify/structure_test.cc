// SPDX-License-Identifier: Apache-2.0
// Schedules that no text could say, or whose numbers are absurd.
#include <gtest/gtest.h>

#include "planner/planners.h"
#include "verify/verify.h"

namespace braid {
namespace {

Schedule good(CollectiveKind kind = CollectiveKind::kAllReduce, int ranks = 2) {
  return find_algorithm(kind, "direct")->plan({kind, ranks, 0}, {}).value();
}

void expect_refused(const Schedule& schedule, const std::string& words) {
  Status status = verify(schedule).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

template <class Change>
void expect_refused_after(const Change& change, const std::string& words) {
  Schedule schedule = good();
  ASSERT_TRUE(verify(schedule).ok());
  change(schedule);
  expect_refused(schedule, words);
}

TEST(Structure, RefusesWrongHeaders) {
  expect_refused_after([](Schedule& s) { s.collective.ranks = 0; }, "0 ranks");
  expect_refused_after([](Schedule& s) { s.collective.ranks = kMaxRanks + 1; }, "4097 ranks");
  expect_refused_after([](Schedule& s) { s.collective.root = 1; }, "root 1");
  expect_refused_after([](Schedule& s) { s.collective.kind = static_cast<CollectiveKind>(77); },
                       "unknown collective");
  expect_refused_after([](Schedule& s) { s.algorithm = "two words"; }, "algorithm's name");
  expect_refused_after([](Schedule& s) { s.algorithm = ""; }, "algorithm's name");
  expect_refused_after([](Schedule& s) { s.chunks = 0; }, "0 chunks");
  expect_refused_after([](Schedule& s) { s.chunks = 2000000000; }, "2000000000 chunks");
  expect_refused_after([](Schedule& s) { s.programs.pop_back(); }, "1 programs for 2 ranks");
  expect_refused_after([](Schedule& s) { s.shares = {1}; }, "1 shares for 2 chunks");
  expect_refused_after([](Schedule& s) { s.shares = {0, 0}; }, "all shares are 0");
  expect_refused_after([](Schedule& s) { s.shares = {uint64_t{1} << 62, uint64_t{1} << 62}; }, "2^63 or more");
}

TEST(Structure, RefusesMoreMemoryThanAProofMayTake) {
  Schedule schedule;
  schedule.collective.ranks = 4096;
  schedule.chunks = kMaxChunks;
  schedule.algorithm = "huge";
  schedule.programs.resize(4096);
  expect_refused(schedule, "too many chunks over all nodes");
}

TEST(Structure, RefusesMoreNodesThanThereMayBe) {
  Schedule schedule = good();
  schedule.programs.resize(kMaxRanks + 1);
  expect_refused(schedule, "4097 nodes, must be at most 4096");
  schedule.programs.resize(kMaxRanks);
  EXPECT_TRUE(verify(schedule).ok()) << verify(schedule).status().message();
  schedule.chunks = kMaxChunks;
  expect_refused(schedule, "too many chunks over all nodes");
}

TEST(Structure, RefusesWrongBlocks) {
  Schedule schedule = good(CollectiveKind::kAllGather, 3);
  schedule.chunks = 2;
  expect_refused(schedule, "one per rank");
  schedule = good(CollectiveKind::kAllGather, 3);
  schedule.shares = {1, 1, 1};
  expect_refused(schedule, "blocks are given");
}

TEST(Structure, RefusesOperandsThatNoTextCanSay) {
  auto step = [](Schedule& s, size_t index) -> Step& { return s.programs[0][0][index]; };  // send; reduce
  expect_refused_after([&](Schedule& s) { step(s, 0).op = static_cast<Op>(9); }, "unknown operation");
  expect_refused_after([&](Schedule& s) { step(s, 0).target.buffer = static_cast<Buffer>(3); }, "unknown memory");
  expect_refused_after([&](Schedule& s) { step(s, 0).sources.push_back({}); },
                       "only reduce and copy have sources");
  expect_refused_after([&](Schedule& s) { step(s, 1).peer = 1; }, "only send and recv have a peer");
  expect_refused_after([&](Schedule& s) { step(s, 1).sources[1].ref.first = 1; }, "remote source names no chunk");
  expect_refused_after([&](Schedule& s) { step(s, 1).sources[0].from = -2; }, "local source has no sender");
  expect_refused_after([&](Schedule& s) { step(s, 0).target.count = 0; }, "one chunk or more");
  expect_refused_after([&](Schedule& s) { step(s, 0).target.first = -1; }, "does not exist");
  expect_refused_after([&](Schedule& s) { step(s, 0).target.count = 2147483647; }, "does not exist");
  expect_refused_after([&](Schedule& s) { step(s, 0).peer = -5; }, "there is no r-5");
}

}  // namespace
}  // namespace braid
