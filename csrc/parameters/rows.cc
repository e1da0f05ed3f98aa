// SPDX-License-Identifier: Apache-2.0
#include "parameters/rows.h"

#include <algorithm>
#include <string>

namespace braid {

Status check_rows(const RuleSpec& rule, size_t begin, size_t count, std::span<const RangeNumbers> table) {
  uint64_t covered = 0;
  for (const RangeNumbers& row : table) {
    if (row.end < covered) return {Code::kInvalidArgument, "the ranges of a table must ascend"};
    if (row.end > begin && covered < begin + count) {
      if (Status bad = check(rule, row.numbers); !bad.ok()) return bad;
    }
    covered = row.end;
  }
  if (covered >= begin + count) return {};
  return {Code::kInvalidArgument, "a table gives numbers for " + std::to_string(covered) +
                                      " elements, not for all " + std::to_string(begin + count)};
}

void apply_rows(const RuleSpec& rule, size_t begin, std::span<const RangeNumbers> table,
                const RowsUpdate& update) {
  const size_t count = update.memory.count;
  size_t done = 0;
  for (const RangeNumbers& row : table) {
    const size_t end = std::min<size_t>(std::max<size_t>(row.end, begin) - begin, count);
    if (end <= done) continue;
    RuleNumbers numbers = row.numbers;
    numbers.rate /= update.divides;
    RuleMemory memory = update.memory;
    memory.values += done;
    memory.update += done;
    for (float*& state : memory.state) state = state == nullptr ? nullptr : state + done;
    if (memory.backup != nullptr) memory.backup += done;
    if (memory.result != nullptr) memory.result += done;
    memory.count = end - done;
    apply(rule, numbers, update.step, update.scale, memory);
    done = end;
  }
}

}  // namespace braid
