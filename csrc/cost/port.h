// SPDX-License-Identifier: Apache-2.0
// The load of a node's port; cost.h has the model.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "cost/cost.h"

namespace braid {

// One direction of a node's memory or NIC during one round.
struct Lane {
  int messages = 0;
  double occupied_s = 0;
  double longest_s = 0;

  void add(double message_occupied_s, double on_link_s) {
    occupied_s += message_occupied_s;
    longest_s = std::max(longest_s, on_link_s);
    ++messages;
  }
  double wire_s() const { return std::max(occupied_s, longest_s); }
};

using Lanes = std::array<Lane, 2>;  // [0] NIC, [1] memory

inline double overheads_s(const Lanes& lanes, const Rates& rates) {
  return (lanes[0].messages + lanes[1].messages) * rates.overhead_s + lanes[0].messages * rates.nic_overhead_s;
}

inline double busy_s(const Lanes& lanes, const Rates& rates) {
  return overheads_s(lanes, rates) + std::max(lanes[0].wire_s(), lanes[1].wire_s());
}

enum Direction { kOut, kIn };
using Port = std::array<Lanes, 2>;  // by direction

// How long one segment occupies one direction of a node's port, in all rounds together.
class Occupation {
 public:
  void add(const Lanes& lanes, const Rates& rates) {
    overheads_s_ += overheads_s(lanes, rates);
    for (size_t k = 0; k < lanes.size(); ++k) lanes_s_[k] += lanes[k].occupied_s;
  }
  double seconds() const { return overheads_s_ + std::max(lanes_s_[0], lanes_s_[1]); }

 private:
  double overheads_s_ = 0;
  std::array<double, 2> lanes_s_ = {};
};

}  // namespace braid
