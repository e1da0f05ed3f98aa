// SPDX-License-Identifier: Apache-2.0
// How much of a vector each owner should own in a direct all-reduce, in plain numbers: everybody sends its part of
// what is owned elsewhere, owners add, and send the sums back. csrc/cost/shares.h applies it to a topology.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"

namespace braid {

// How many seconds one direction of an owner's NIC is busy, if it owns the share x of a vector of one byte.
struct NicUse {
  double fixed_s = 0;      // at x = 0
  double per_share_s = 0;  // times x; negative where owning more leaves less to send

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

// The shares with the least time. For a given time every owner has an interval of shares that its NIC can bear.
// The time is possible if no interval is empty and their ends allow the sum 1. The least time is found by
// bisection; the shares are then equally far inside their intervals. Uses only + - * /, min and max, and always
// the same number of steps, so ranks that share the arguments share the result. REQUIRES: owners; every use
// finite, and not negative at x = 0 and x = 1.
Split least_time_split(std::span<const OwnerUse> owners);

struct Owner {
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
  bool contributes = true;  // has a vector of its own and needs the sum; others only add
};

// Among n contributing owners and others, where a contribution travels as push_ratio and a sum as pull_ratio times
// its size (compressed, say). With share x
//   a contributing owner sends    (1-x) push + (n-1) x pull  and receives  (n-1) x push + (1-x) pull,
//   another one          sends    n x pull                   and receives  n x push.
// With ratios 1, and b_i in both directions (sums W over contributing owners, C over others; n > 2):
//   T = max(1 / min b_i of contributing ones, 2(n-1) / (W + C (n-2)/n)),
//   x_i = (T b_i - 1) / (n-2),  others T b_j / n.
// kInvalidArgument without a contributing owner, or for rates and ratios that are not positive and finite, or so
// far apart that a double cannot hold the time.
Result<Split> optimal_split(std::span<const Owner> owners, double push_ratio = 1, double pull_ratio = 1);

}  // namespace braid
