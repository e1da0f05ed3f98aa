// SPDX-License-Identifier: Apache-2.0
#include "communicator/statistics.h"

#include <algorithm>

namespace braid {

void Statistics::record(CollectiveKind kind, const std::string& family, uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  OperationStats& row = rows_[{kind, family}];
  if (row.calls == 0) {
    row.collective = name_of(kind);
    row.family = family;
    row.min_bytes = bytes;
  }
  ++row.calls;
  row.bytes += bytes;
  row.min_bytes = std::min(row.min_bytes, bytes);
  row.max_bytes = std::max(row.max_bytes, bytes);
  row.seconds += seconds;
}

std::vector<OperationStats> Statistics::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationStats> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  return rows;
}

}  // namespace braid
