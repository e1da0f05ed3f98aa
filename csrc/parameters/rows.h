// SPDX-License-Identifier: Apache-2.0
// A rule on a shard, row by row of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "parameters/call.h"
#include "rules/rule.h"

namespace braid {

// kInvalidArgument if the rule refuses numbers of the table, or if it does not cover elements [begin, begin + count).
Status check_rows(const RuleSpec& rule, size_t begin, size_t count, std::span<const RangeNumbers> table);

struct RowsUpdate {
  uint64_t step = 1;   // see apply() of a rule
  float scale = 1;     // of the update
  double divides = 1;  // the rates
  RuleMemory memory;   // of all elements of the shard
};
// REQUIRES: check_rows() is ok.
void apply_rows(const RuleSpec& rule, size_t begin, std::span<const RangeNumbers> table, const RowsUpdate& update);

}  // namespace braid
