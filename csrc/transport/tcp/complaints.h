// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"

namespace braid {

// Limits log lines about events that strangers can cause as often as they like. Each reason is logged once per
// kQuiet for each source, and at most kMostLines lines per kInterval. Not thread safe.
class Complaints {
 public:
  static constexpr milliseconds kQuiet{600'000};    // until the same line may be logged again
  static constexpr milliseconds kInterval{60'000};  // has at most kMostLines lines
  static constexpr int kMostLines = 8;
  static constexpr size_t kRemembered = 256;

  // The line to log, or "". The line tells how many lines were left out since the last one.
  std::string about(const std::string& source, const std::string& what, Deadline now = Clock::now());
  size_t remembered() const { return said_.size(); }

 private:
  // By source and reason: when it may be logged again.
  std::map<std::pair<std::string, std::string>, Deadline> said_;
  Deadline interval_ends_{};
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace braid
