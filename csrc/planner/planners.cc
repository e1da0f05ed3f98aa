// SPDX-License-Identifier: Apache-2.0
#include "planner/planners.h"

#include <algorithm>
#include <array>
#include <string>

#include "planner/shapes.h"

namespace braid {
namespace {

bool supports_any(const Collective& collective) { return check(collective).ok(); }

// A `weighed` algorithm takes shares and aggregators; other algorithms take neither.
Status check_options(const Collective& collective, const PlanOptions& options, bool weighed) {
  Status status = check(collective);
  if (!status.ok()) return status;
  if (!weighed && !options.shares.empty()) {
    return {Code::kInvalidArgument, "this algorithm cuts equal shares only"};
  }
  if (!weighed && options.aggregators != 0) {
    return {Code::kInvalidArgument, "this algorithm has no work for aggregators"};
  }
  if (options.aggregators < 0 || options.aggregators > kMaxRanks - collective.ranks) {
    return {Code::kInvalidArgument, std::to_string(options.aggregators) + " aggregators, must be between 0 and " +
                                        std::to_string(kMaxRanks - collective.ranks) + " with " +
                                        std::to_string(collective.ranks) + " ranks"};
  }
  return check_hosts(collective, options.aggregators, options.hosts);
}

template <Schedule (*draw)(const Collective&)>
Result<Schedule> plain(const Collective& collective, const PlanOptions& options) {
  Status status = check_options(collective, options, false);
  if (!status.ok()) return status;
  return draw(collective);
}

template <Schedule (*draw)(const Collective&, const Hosts&)>
Result<Schedule> placed(const Collective& collective, const PlanOptions& options) {
  Status status = check_options(collective, options, false);
  if (!status.ok()) return status;
  return draw(collective, Hosts(collective.ranks, options.hosts));
}

template <Result<Schedule> (*draw)(const Collective&, const PlanOptions&)>
Result<Schedule> weighed(const Collective& collective, const PlanOptions& options) {
  Status status = check_options(collective, options, true);
  if (!status.ok()) return status;
  return draw(collective, options);
}

template <Schedule (*draw)(const Collective&)>
constexpr Algorithm row(CollectiveKind kind, std::string_view name) {
  return {name, kind, false, false, false, supports_any, plain<draw>};
}

template <Schedule (*draw)(const Collective&, const Hosts&)>
constexpr Algorithm row(CollectiveKind kind, std::string_view name, bool hierarchical = false) {
  return {name, kind, false, false, hierarchical, supports_any, placed<draw>};
}

template <Result<Schedule> (*draw)(const Collective&, const PlanOptions&)>
constexpr Algorithm row(CollectiveKind kind, std::string_view name, bool hierarchical = false) {
  return {name, kind, true, true, hierarchical, supports_any, weighed<draw>};
}

using enum CollectiveKind;

// Sorted by collective.
constexpr std::array kAlgorithms = {
    row<plan_ring_all_reduce>(kAllReduce, "ring"),
    row<plan_doubling>(kAllReduce, "doubling"),
    row<plan_halving_doubling>(kAllReduce, "halving_doubling"),
    row<plan_direct_all_reduce>(kAllReduce, "direct"),
    row<plan_gather_all>(kAllReduce, "gather_all"),
    row<plan_double_tree>(kAllReduce, "double_tree"),
    row<plan_hierarchical_ring>(kAllReduce, "hierarchical_ring", true),
    row<plan_hierarchical_doubling>(kAllReduce, "hierarchical_doubling", true),
    row<plan_hierarchical_halving_doubling>(kAllReduce, "hierarchical_halving_doubling", true),
    row<plan_hierarchical_direct>(kAllReduce, "hierarchical_direct", true),
    row<plan_ring_reduce_scatter>(kReduceScatter, "ring"),
    row<plan_direct_reduce_scatter>(kReduceScatter, "direct"),
    row<plan_hierarchical_reduce_scatter>(kReduceScatter, "hierarchical", true),
    row<plan_ring_all_gather>(kAllGather, "ring"),
    row<plan_direct_all_gather>(kAllGather, "direct"),
    row<plan_hierarchical_all_gather>(kAllGather, "hierarchical", true),
    row<plan_binomial_broadcast>(kBroadcast, "binomial"),
    row<plan_direct_broadcast>(kBroadcast, "direct"),
    row<plan_hierarchical_broadcast>(kBroadcast, "hierarchical", true),
    row<plan_binomial_reduce>(kReduce, "binomial"),
    row<plan_direct_reduce>(kReduce, "direct"),
    row<plan_hierarchical_reduce>(kReduce, "hierarchical", true),
    row<plan_pairwise>(kAllToAll, "pairwise"),
    row<plan_direct_all_to_all>(kAllToAll, "direct"),
    row<plan_direct_gather>(kGather, "direct"),
    row<plan_direct_scatter>(kScatter, "direct"),
    row<plan_doubling>(kBarrier, "doubling"),
    row<plan_gather_all>(kBarrier, "gather_all"),
};
static_assert(std::ranges::is_sorted(kAlgorithms, {}, &Algorithm::kind));

}  // namespace

bool suits(const Algorithm& algorithm, const std::vector<int>& hosts) {
  if (!algorithm.hierarchical) return true;
  Hosts grouped(static_cast<int>(hosts.size()), hosts);
  return grouped.count() >= 2 && grouped.most() >= 2;
}

std::span<const Algorithm> algorithms(CollectiveKind kind) {
  auto [first, last] = std::ranges::equal_range(kAlgorithms, kind, {}, &Algorithm::kind);
  return {first, last};
}

const Algorithm* find_algorithm(CollectiveKind kind, std::string_view name) {
  for (const Algorithm& algorithm : algorithms(kind)) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace braid
