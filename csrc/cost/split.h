// SPDX-License-Identifier: Apache-2.0
// How much of a vector each owner should own in a direct all-reduce, computed from rates alone. Every rank sends
// its contributions to the owners; the owners add them and send the sums back. csrc/cost/shares.h applies this to
// a topology.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"

namespace braid {

// How many seconds one direction of an owner's NIC is busy, if it owns the share x of a vector of one byte.
struct NicUse {
  double fixed_s = 0;      // at x = 0
  double per_share_s = 0;  // added times x; negative if an owner of more sends less

  bool operator==(const NicUse&) const = default;
};

struct OwnerUse {
  NicUse up;
  NicUse down;

  bool operator==(const OwnerUse&) const = default;
};

struct Split {
  double seconds_per_byte = 0;  // until the last NIC is done
  std::vector<double> shares;   // at least 0, with sum 1
};

// Returns the shares with the least time. For a given time every owner has an interval of shares for which its NIC
// is done in time. The time is possible if no interval is empty and shares with sum 1 fit the intervals. Bisection
// finds the least time; the shares are then equally far inside their intervals. Uses only + - * /, min and max,
// and always the same number of steps, so ranks with equal arguments get equal results. REQUIRES: at least one
// owner; every use is finite, and not negative at x = 0 and x = 1.
Split least_time_split(std::span<const OwnerUse> owners);

struct Owner {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
  bool contributes = true;  // has a vector of its own and needs the sum; false: an aggregator
};

// Returns the best shares for n contributing owners and any number of aggregators. push_ratio is the size of a
// message with contributions divided by their size; pull_ratio is the same for sums. Compression makes them less
// than 1. With share x
//   a contributing owner sends    (1-x) push + (n-1) x pull  and receives  (n-1) x push + (1-x) pull,
//   an aggregator        sends    n x pull                   and receives  n x push.
// If the ratios are 1, each rate b_i holds in both directions, and n > 2, with W the sum of b_i over contributing
// owners and C the sum of b_j over aggregators:
//   T = max(1 / min b_i of contributing owners, 2(n-1) / (W + C (n-2)/n)),
//   x_i = (T b_i - 1) / (n-2),  and for aggregators x_j = T b_j / n.
// kInvalidArgument if no owner contributes, if a rate or ratio is not positive and finite, or if the rates are so
// far apart that a double cannot hold the time.
Result<Split> optimal_split(std::span<const Owner> owners, double push_ratio = 1, double pull_ratio = 1);

}  // namespace braid
