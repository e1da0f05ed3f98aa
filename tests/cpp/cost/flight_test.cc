// SPDX-License-Identifier: Apache-2.0
#include "cost/flight.h"

#include <gtest/gtest.h>

#include "planner/planners.h"

namespace braid {
namespace {

constexpr int64_t kKiB = 1024;

int64_t chunk(CollectiveKind kind, const char* algorithm, const Topology& topology, int window,
              const PlanOptions& options = {}) {
  return chunk_bytes_for(find_algorithm(kind, algorithm)->plan({kind, topology.nodes(), 0}, options).value(),
                         topology, window);
}

// All NICs alike, so fast that 10 ms of them are `queue_bytes`.
Topology with_queue(int nodes, double queue_bytes) { return uniform(nodes, 1e-4, 10e-3 / queue_bytes); }

void expect_about(int64_t bytes, int64_t expected_bytes) {
  EXPECT_EQ(bytes % 64, 0);
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(expected_bytes), 65);
}

TEST(Flight, WhatAWindowHasUnderWayFitsTheQueue) {
  const Topology four = with_queue(4, 1024 * kKiB);
  // A ring takes one chunk per round, direct exchange three.
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", four, 8), 128 * kKiB);
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", four, 4), 1024 * kKiB / 12);
  expect_about(chunk(CollectiveKind::kGather, "direct", four, 4), 1024 * kKiB / 12);
  expect_about(chunk(CollectiveKind::kAllGather, "ring", four, 8), 128 * kKiB);
}

TEST(Flight, TheSlowestQueueDecides) {
  Topology topology = with_queue(4, 4096 * kKiB);
  topology.set_nic(3, {1e-9, 10e-3 / (512 * kKiB)});
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", topology, 8), 64 * kKiB);
  // The slow host owns nothing, but takes the whole vector: four chunks' worth of a segment.
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", topology, 4, {{1, 1, 1, 0}, {}}), 32 * kKiB);
}

// One chunk of everybody, in the round in which it adds up.
TEST(Flight, AnAggregatorHasAQueueToo) {
  Topology topology = with_queue(5, 4096 * kKiB);
  topology.set_nic(4, {1e-9, 10e-3 / (512 * kKiB)});
  const Schedule schedule = find_algorithm(CollectiveKind::kAllReduce, "direct")
                                ->plan({CollectiveKind::kAllReduce, 4, 0}, {{}, {}, 1})
                                .value();
  expect_about(chunk_bytes_for(schedule, topology, 4), 32 * kKiB);
}

// A ring takes one chunk at a time, so its window alone would make that a quarter of what passes in 10 ms.
TEST(Flight, AChunkPassesItsNicSoon) {
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", with_queue(4, 1024 * kKiB), 4), 1024 * kKiB * 3 / 20);
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", with_queue(4, 100 * kKiB), 4), 16 * kKiB);
  Topology topology = with_queue(4, 4096 * kKiB);
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", topology, 4), 256 * kKiB);
  topology.set_nic(3, {1e-9, 10e-3 / (400 * kKiB)});
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", topology, 4), 60 * kKiB);
}

TEST(Flight, HasLimits) {
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", with_queue(8, 1), 4),
               256 * kKiB / 28);  // any queue holds 256 KiB
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", with_queue(64, 1), 64),
               4 * kKiB);  // too many for any queue
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", with_queue(8, 1e12), 4), 4096 * kKiB / 28);
  expect_about(chunk(CollectiveKind::kAllReduce, "ring", with_queue(8, 1e12), 1), 256 * kKiB);
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", uniform(4, 0, 0), 4), 256 * kKiB);
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", one_host(8), 64), 256 * kKiB);
}

TEST(Flight, RanksOfAHostShareItsQueue) {
  const Topology pairs({0, 0, 1, 1}, {1e-6, 1e-10}, {1e-4, 10e-3 / (512.0 * kKiB)});
  // Each of two ranks takes two chunks from the other host in every round.
  expect_about(chunk(CollectiveKind::kAllReduce, "direct", pairs, 4), 512 * kKiB / 4 / 4);
}

}  // namespace
}  // namespace braid
