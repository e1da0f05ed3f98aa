// SPDX-License-Identifier: Apache-2.0
// Proves a schedule before anything may run it. The executor accepts no other type than VerifiedSchedule, and
// only verify() can make one.
//
// What is proved, for separate and for shared input and output memory alike:
//   1. well formed: every ref exists on its node, every peer is another node of the group;
//   2. no race: inside a round, memory in which a message lands is not sent, and no second message lands in it;
//   3. matched: messages pair up in number and in content (so in size, too);
//   4. no deadlock, even if a send cannot complete before its receiver has reached the matching round;
//   5. result: every rank ends with the result that the collective promises, and each contribution counts exactly
//      once (aggregators have no input and need no result);
//   6. bit-identical: if several nodes end with the same chunk, all computed it by the same expression
//      (two-operand sums may differ in order: IEEE addition is commutative).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

class VerifiedSchedule {
 public:
  const Schedule& schedule() const { return *schedule_; }

  // Facts that the proof finds for one step of one node.
  struct StepFacts {
    // For send and recv: the number of this message among those from its sender to its receiver (0, 1, ...).
    // For reduce: one number per remote source, in order; local sources have -1.
    std::vector<int32_t> message;
    // For reduce: its target now holds every rank's contribution, so that an average is divided here. True for all
    // chunks of the target or for none: verify() refuses a reduce that completes only a part of its target.
    bool completes = false;
  };
  const StepFacts& facts(Node node, size_t round, size_t step) const { return facts_[node][round][step]; }

  // 64-bit digest of the text form: equal on all ranks iff they run the same schedule.
  uint64_t digest() const { return digest_; }

 private:
  friend Result<VerifiedSchedule> verify(Schedule schedule);
  VerifiedSchedule() = default;

  std::shared_ptr<const Schedule> schedule_;
  std::vector<std::vector<std::vector<StepFacts>>> facts_;
  uint64_t digest_ = 0;
};

// kInvalidArgument with node, round, step and the reason, in the text form's words.
Result<VerifiedSchedule> verify(Schedule schedule);

}  // namespace braid
