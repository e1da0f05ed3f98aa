// SPDX-License-Identifier: Apache-2.0
// A rehearsal whose threads, or whose memory, are refused ends with an error that says so.
#include "executor/rehearsal.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/caught.h"
#include "injection/faults.h"
#include "support/every_algorithm.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

Status rehearse_a_ring() {
  constexpr int kRanks = 3;
  const Collective collective{CollectiveKind::kAllReduce, kRanks, 0};
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(4096, 1));
  std::vector<Operands> operands;
  for (auto& own : values) {
    const Bytes bytes = std::as_writable_bytes(std::span(own));
    operands.push_back({DType::kFloat32, ReduceOp::kSum, {bytes}, {bytes}, bytes.size()});
  }
  RehearsalOptions options;
  options.timeout = limit(milliseconds(10'000));
  return rehearse(planned(*find_algorithm(collective.kind, "ring"), collective), operands, options);
}

TEST(RehearsalInjection, EndsWithTheCause) {
  for (const Fault fault : {Fault::kMemory, Fault::kThread}) {
    uint64_t all = 1;
    uint64_t step = 1;
    for (uint64_t first = 0; first <= all; first += step) {
      arm(fault, first);
      Status ended;
      const Status thrown = caught("rehearsing", [&] { ended = rehearse_a_ring(); });
      const uint64_t seen = disarm();
      if (first == 0) {
        all = seen;
        step = all > 50 ? all / 50 | 1 : 1;
        EXPECT_TRUE(thrown.ok() && ended.ok()) << thrown.message() << ended.message();
        first = 1 - step;
        continue;
      }
      EXPECT_NE(ended.code(), Code::kTimeout) << "refusal " << first << ": " << ended.message();
    }
  }
  EXPECT_TRUE(rehearse_a_ring().ok());
}

}  // namespace
}  // namespace braid::testing
