// SPDX-License-Identifier: Apache-2.0
// The table of all families: for a collective and a name, the function that draws the schedule. Planners are pure:
// no clock, no randomness, no environment, so all ranks draw the same schedule. A new family is one file and one
// row.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

struct PlanOptions {
  // One weight per owner: how much of the vector each owner has. Empty means equal weights. Only families with
  // `takes_shares` accept weights. The first owners are the ranks; in a hierarchical family they are the hosts of
  // ranks, in order of first appearance. Then comes each aggregator.
  std::vector<uint64_t> shares;
  // The host of every rank, numbered by first appearance, and then of every aggregator. Empty: each node has a
  // host of its own. All families accept hosts.
  std::vector<int> hosts;
  // The number of aggregators. Only families with `takes_aggregators` accept more than 0.
  int aggregators = 0;

  auto operator<=>(const PlanOptions&) const = default;
};

struct Family {
  std::string_view name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool takes_shares = false;
  bool takes_aggregators = false;
  bool hierarchical = false;  // contains a schedule between hosts; see suits()
  bool (*supports)(const Collective& collective) = nullptr;
  // kInvalidArgument when the collective is not supported or the options do not fit it.
  Result<Schedule> (*plan)(const Collective& collective, const PlanOptions& options) = nullptr;
};

// Returns true if the family is worth pricing with these hosts of the ranks. A hierarchical family is not if each
// rank is alone on its host, or if all ranks are on one host: then another family draws the same schedule or a
// better one. All other families are.
bool suits(const Family& family, const std::vector<int>& hosts);

// The families of one collective; the first is a sound choice for any size.
std::span<const Family> families(CollectiveKind kind);
const Family* find_family(CollectiveKind kind, std::string_view name);  // nullptr when there is none

}  // namespace braid
