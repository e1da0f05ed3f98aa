// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"

namespace braid {

// What a log should say of something that strangers may cause as often as they like: each reason once in a while for
// each source, and only so many lines a minute. Not thread safe.
class Complaints {
 public:
  static constexpr milliseconds kQuiet{600'000};    // before the same is said again
  static constexpr milliseconds kInterval{60'000};  // in which at most kMostLines are said
  static constexpr int kMostLines = 8;
  static constexpr size_t kRemembered = 256;

  // The line to log, or "". Tells how many were left out since the last line.
  std::string about(const std::string& source, const std::string& what, Deadline now = Clock::now());
  size_t remembered() const { return said_.size(); }

 private:
  std::map<std::pair<std::string, std::string>, Deadline> said_;  // source and reason: when it may be said again
  Deadline interval_ends_{};
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace braid
