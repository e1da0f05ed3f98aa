// SPDX-License-Identifier: Apache-2.0
#include "cost/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace braid {
namespace {

// How often the first guess is halved. A double has 53 bits; the rest is for rates that differ by many powers of
// 2.
constexpr int kHalvings = 200;

// The shares with which an owner is done in time. They are not limited to 1: the sum of all shares does that. So
// the fast owners divide what a slow NIC leaves in proportion to what they can carry.
struct Interval {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();

  Interval(const OwnerUse& owner, double time_s) {
    cut(owner.up, time_s);
    cut(owner.down, time_s);
    if (std::isinf(most)) most = 1;
  }

  void cut(const NicUse& use, double time_s) {
    const double left_s = time_s - use.fixed_s;
    if (use.per_share_s > 0) {
      most = std::min(most, left_s / use.per_share_s);
    } else if (use.per_share_s < 0) {
      least = std::max(least, left_s / use.per_share_s);
    } else if (left_s < 0) {
      most = -1;
    }
  }
};

// The interval of every owner, and the sums of their ends.
struct Intervals {
  Intervals(std::span<const OwnerUse> owners, double time_s) {
    for (const OwnerUse& owner : owners) {
      const Interval one(owner, time_s);
      feasible = feasible && one.least <= one.most;
      least += one.least;
      most += one.most;
      each.push_back(one);
    }
    feasible = feasible && least <= 1 && 1 <= most;
  }

  std::vector<Interval> each;
  double least = 0;
  double most = 0;
  bool feasible = true;
};

// A time in which every owner can have any share.
double ample_s(std::span<const OwnerUse> owners) {
  double most_s = 0;
  for (const OwnerUse& owner : owners) {
    for (const NicUse& use : {owner.up, owner.down}) {
      most_s = std::max({most_s, use.fixed_s, use.fixed_s + use.per_share_s});
    }
  }
  return most_s;
}

Status wrong(const char* what, double value) {
  return {Code::kInvalidArgument, std::string(what) + " is " + std::to_string(value) + ": not a positive number"};
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Split least_time_split(std::span<const OwnerUse> owners) {
  double short_s = 0;
  double enough_s = ample_s(owners);
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle_s = short_s + (enough_s - short_s) / 2;
    (Intervals(owners, middle_s).feasible ? enough_s : short_s) = middle_s;
  }
  const Intervals intervals(owners, enough_s);
  const double room = intervals.most - intervals.least;
  const double inside = room > 0 ? (1 - intervals.least) / room : 0;
  Split split{enough_s, {}};
  for (const Interval& one : intervals.each) {
    split.shares.push_back(std::max(0.0, one.least + inside * (one.most - one.least)));
  }
  return split;
}

Result<Split> optimal_split(std::span<const Owner> owners, double push_ratio, double pull_ratio) {
  if (!is_positive(push_ratio)) return wrong("the push ratio", push_ratio);
  if (!is_positive(pull_ratio)) return wrong("the pull ratio", pull_ratio);
  double n = 0;
  for (const Owner& owner : owners) {
    if (!is_positive(owner.up_bytes_per_s)) return wrong("a rate up", owner.up_bytes_per_s);
    if (!is_positive(owner.down_bytes_per_s)) return wrong("a rate down", owner.down_bytes_per_s);
    if (owner.contributes) ++n;
  }
  if (n == 0) return Status(Code::kInvalidArgument, "nobody contributes");

  std::vector<OwnerUse> uses;
  for (const Owner& owner : owners) {
    const double up = owner.up_bytes_per_s;
    const double down = owner.down_bytes_per_s;
    if (owner.contributes) {
      uses.push_back({{push_ratio / up, ((n - 1) * pull_ratio - push_ratio) / up},
                      {pull_ratio / down, ((n - 1) * push_ratio - pull_ratio) / down}});
    } else {
      uses.push_back({{0, n * pull_ratio / up}, {0, n * push_ratio / down}});
    }
  }
  if (!std::isfinite(ample_s(uses))) {
    return Status(Code::kInvalidArgument, "the rates are too far apart, or from the ratios");
  }
  return least_time_split(uses);
}

}  // namespace braid
