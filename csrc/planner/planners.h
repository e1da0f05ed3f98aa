// SPDX-License-Identifier: Apache-2.0
// The table of all algorithms: for a collective and a name, the function that draws the schedule. Planners are pure:
// no clock, no randomness, no environment, so all ranks draw the same schedule. A new algorithm is one file and one
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
  // One weight per owner: how much of the vector each owner has. Empty means equal weights. Only algorithms with
  // `takes_shares` accept weights. The first owners are the ranks; in a hierarchical algorithm they are the hosts of
  // ranks, in order of first appearance. Then comes each aggregator.
  std::vector<uint64_t> shares;
  // The host of every rank, numbered by first appearance, and then of every aggregator. Empty: each node has a
  // host of its own. All algorithms accept hosts.
  std::vector<int> hosts;
  // The number of aggregators. Only algorithms with `takes_aggregators` accept more than 0.
  int aggregators = 0;

  auto operator<=>(const PlanOptions&) const = default;
};

// One algorithm for one collective: a row of the table.
struct Algorithm {
  std::string_view name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool takes_shares = false;
  bool takes_aggregators = false;
  bool hierarchical = false;  // contains a schedule between hosts; see suits()
  bool (*supports)(const Collective& collective) = nullptr;
  // kInvalidArgument when the collective is not supported or the options do not fit it.
  Result<Schedule> (*plan)(const Collective& collective, const PlanOptions& options) = nullptr;
};

// Returns true if the algorithm is worth pricing with these hosts of the ranks. A hierarchical algorithm is worth it
// only if there are several hosts, and several ranks on one of them. Otherwise another algorithm draws the same
// schedule or a better one. All other algorithms are always worth it.
bool suits(const Algorithm& algorithm, const std::vector<int>& hosts);

// The algorithms of one collective; the first is a sound choice for any size.
std::span<const Algorithm> algorithms(CollectiveKind kind);
const Algorithm* find_algorithm(CollectiveKind kind, std::string_view name);  // nullptr when there is none

}  // namespace braid
