// SPDX-License-Identifier: Apache-2.0
// Aggregator discovery, on the first rank: finds the aggregators that wait, takes those that answer, and stops
// asking for a while after a failure.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/registry.h"
#include "base/clock.h"
#include "base/status.h"

namespace braid {

// "1 aggregator", "2 aggregators".
std::string aggregators_text(size_t count);

class AggregatorDiscovery {
 public:
  explicit AggregatorDiscovery(std::shared_ptr<Store> store) : registry_(std::move(store)) {}

  // For a new group: takes aggregators until there are `awaited`, or until the deadline. Fewer are no failure.
  // Fails only if the store fails. Returns early once `stopped`.
  Status await(size_t awaited, Deadline deadline, const std::function<bool()>& stopped);
  // For a replan: are there aggregators beside the `in_group` of the aggregator group? Then that group should end.
  // Its aggregators come back, and a larger group forms.
  bool wants_larger_group(size_t in_group);
  // The tickets of aggregators for a new group; all have answered. None if no aggregator waits, or it is too early
  // to ask.
  std::vector<std::string> discover();
  Status appoint(const std::vector<std::string>& tickets, const Appointment& appointment) {
    return registry_.appoint(tickets, appointment);
  }
  // An aggregator group could not be formed, or failed after this many operations. The next one is formed later;
  // each failure doubles the wait.
  void lost_group(size_t operations);

 private:
  void look();

  Registry registry_;
  std::vector<std::string> waiting_;  // seen, but not asked yet
  std::vector<std::string> willing_;  // asked and answered
  size_t expected_ = 0;               // after an aggregator group has ended, wait for this many
  Deadline expected_until_{};
  int patience_ = 0;  // how many more replans pass without asking
  int next_patience_ = 1;
};

}  // namespace braid
