// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/complaints.h"

namespace braid {

std::string Complaints::about(const std::string& source, const std::string& what, Deadline now) {
  if (now >= interval_ends_) {
    interval_ends_ = now + kInterval;
    lines_ = 0;
  }
  const auto found = said_.find({source, what});
  if (lines_ >= kMostLines || (found != said_.end() && now < found->second)) {
    ++left_out_;
    return "";
  }
  ++lines_;
  if (said_.size() >= kRemembered) {
    std::erase_if(said_, [&](const auto& said) { return said.second <= now; });
    if (said_.size() >= kRemembered) said_.clear();  // repeated lines are better than no new lines for ever
  }
  said_[{source, what}] = now + kQuiet;
  std::string line = source.empty() ? what : "closed a connection from " + source + ": " + what;
  if (left_out_ > 0) line += " (and " + std::to_string(left_out_) + " more that were not logged)";
  left_out_ = 0;
  return line;
}

}  // namespace braid
