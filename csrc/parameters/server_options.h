// SPDX-License-Identifier: Apache-2.0
// What a parameter server is told when it begins.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parameters/coding.h"
#include "parameters/mapped_shard.h"
#include "parameters/memory_budget.h"
#include "parameters/modes.h"
#include "rules/rule.h"

namespace braid {

struct ServerOptions {
  RuleSpec rule;
  Mode mode = Mode::kAsync;
  Consistency consistency = Consistency::kAtomic;  // kRelaxed: see check() of a setup.
  Quorum quorum;
  int staleness = 0;                  // kSsp: how many updates a worker may be ahead of the slowest one.
  bool divides_by_staleness = false;  // the rate is divided by the staleness (Zhang 2016).
  std::string settings;               // equal on all workers.
  BodyCodecs coding;                  // of updates and values that travel.
  int buffers = 4;                    // large calls whose bodies the server holds at a time.
  int replicas = 0;                   // 1: another server keeps a copy of each shard (replica.cc).
  // What the server may use (memory_needs.h). Null: as much as the machine has.
  std::shared_ptr<MemoryBudget> budget;
  uint64_t promised_bytes = 0;  // are its own, beside the budget.
  size_t promised_workers = 0;  // have room in the promised bytes.

  bool has_rounds() const { return mode == Mode::kSync || mode == Mode::kQuorum; }
  bool is_relaxed() const { return consistency == Consistency::kRelaxed; }
  ShardRule shard_rule() const { return {rule, divides_by_staleness}; }
};

}  // namespace braid
