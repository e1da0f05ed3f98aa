// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "communicator/communicator.h"

namespace braid {

// Counts finished collectives by kind and family. Thread safe.
class Statistics {
 public:
  void record(CollectiveKind kind, const std::string& family, uint64_t bytes, double seconds);
  std::vector<OperationStats> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<CollectiveKind, std::string>, OperationStats> rows_;
};

}  // namespace braid
