// SPDX-License-Identifier: Apache-2.0
// The table of all families: for a collective and a name, the function that draws the schedule. Planners are pure:
// no clock, no randomness, no environment, so all ranks draw the same. A new family is one file and one row.
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
  // One weight per owner: how much of the vector each owns. Empty means equal. Only families with `takes_shares`
  // accept any. Owners are the ranks, in a hierarchical family the hosts of ranks in order of first appearance;
  // then the aggregators, each for itself.
  std::vector<uint64_t> shares;
  // The host of every rank, numbered by first appearance, and then of every aggregator. Empty: each on one of
  // its own. All families accept them.
  std::vector<int> hosts;
  // Nodes after the ranks that only add up. Only families with `takes_aggregators` accept any.
  int aggregators = 0;

  auto operator<=>(const PlanOptions&) const = default;
};

struct Family {
  std::string_view name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool takes_shares = false;
  bool takes_aggregators = false;
  bool hierarchical = false;  // made of a schedule between hosts; see suits()
  bool (*supports)(const Collective& collective) = nullptr;
  // kInvalidArgument when the collective is not supported or the options do not fit it.
  Result<Schedule> (*plan)(const Collective& collective, const PlanOptions& options) = nullptr;
};

// Is the family worth a look with these hosts of the ranks? Where each rank is alone on its host, or all are
// on one, a hierarchical family is not: it draws what another family does, or does better. Any other always is.
bool suits(const Family& family, const std::vector<int>& hosts);

// The families of one collective; the first is a sound choice for any size.
std::span<const Family> families(CollectiveKind kind);
const Family* find_family(CollectiveKind kind, std::string_view name);  // nullptr when there is none

}  // namespace braid
