// SPDX-License-Identifier: Apache-2.0
#include "c10d/leg_table.h"

#include <algorithm>
#include <cmath>

namespace braid::adapter {
namespace {

std::string in_us(double seconds) { return std::to_string(std::llround(seconds * 1e6)) + " us"; }

}  // namespace

const LegRow* LegTable::find(const std::string& operation, int64_t bytes) const {
  const auto of_operation = rows_.find(operation);
  if (of_operation == rows_.end() || of_operation->second.empty()) return nullptr;
  const std::vector<LegRow>& rows = of_operation->second;
  const auto fits = [bytes](const LegRow& row) { return bytes <= row.up_to_bytes; };
  const auto row = std::find_if(rows.begin(), rows.end() - 1, fits);
  return &*row;
}

bool LegTable::pays(const std::string& operation, int64_t bytes) const {
  const LegRow* const row = find(operation, bytes);
  return row == nullptr || row->leg_s < row->flat_s;
}

std::string LegTable::in_words(const std::string& operation, int64_t bytes) const {
  const LegRow* const row = find(operation, bytes);
  if (row == nullptr) return "";
  return "the cost model says " + in_us(row->leg_s) + " with it and " + in_us(row->flat_s) + " without it, for " +
         std::to_string(row->up_to_bytes) + " bytes";
}

}  // namespace braid::adapter
