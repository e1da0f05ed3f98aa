// SPDX-License-Identifier: Apache-2.0
// The first rank's dealings with aggregators: who waits to be asked, whom to take, and when to leave it for a while.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "communicator/registry.h"

namespace braid {

// "1 aggregator", "2 aggregators".
std::string aggregators_text(size_t count);

class AggregatorDiscovery {
 public:
  explicit AggregatorDiscovery(std::shared_ptr<Store> store) : registry_(std::move(store)) {}

  // For a new group: takes those who come until there are `awaited`, at most until the deadline; fewer are no failure.
  // What the store failed with. `stopped` ends it early.
  Status await(size_t awaited, Deadline deadline, const std::function<bool()>& stopped);
  // At a replan: have aggregators come that an aggregator group of `in_group` does not have? Then it should part: they come back for a
  // larger one.
  bool wants_larger_group(size_t in_group);
  // Those to form an aggregator group of, all alive a moment ago; none when there is nobody, or it is not the time.
  std::vector<std::string> discover();
  Status appoint(const std::vector<std::string>& tickets, const Appointment& appointment) {
    return registry_.appoint(tickets, appointment);
  }
  // An aggregator group could not be formed, or was lost after so many operations: the next is formed a while later, the longer the
  // more often this happens.
  void lost_group(size_t operations);

 private:
  void look();

  Registry registry_;
  std::vector<std::string> waiting_;  // seen, and not asked
  std::vector<std::string> willing_;  // asked, and answered
  size_t expected_ = 0;               // after an aggregator group has parted, so many are waited for, until then
  Deadline expected_until_{};
  int patience_ = 0;  // replans to let pass
  int next_patience_ = 1;
};

}  // namespace braid
