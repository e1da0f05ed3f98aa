// SPDX-License-Identifier: Apache-2.0
#include "planner/planners.h"

#include <algorithm>
#include <array>
#include <string>

#include "planner/shapes.h"

namespace braid {
namespace {

bool supports_any(const Collective& collective) { return check(collective).ok(); }

template <Schedule (*draw)(const Collective&)>
Result<Schedule> plain(const Collective& collective, const PlanOptions& options) {
  Status status = check(collective);
  if (!status.ok()) return status;
  if (!options.shares.empty()) return Status(Code::kInvalidArgument, "this family cuts equal shares only");
  return draw(collective);
}

Result<Schedule> direct_all_reduce(const Collective& collective, const PlanOptions& options) {
  Status status = check(collective);
  if (!status.ok()) return status;
  return plan_direct_all_reduce(collective, options);
}

template <Schedule (*draw)(const Collective&)>
constexpr Family row(CollectiveKind kind, std::string_view name) {
  return {name, kind, false, supports_any, plain<draw>};
}

using enum CollectiveKind;

// Sorted by collective.
constexpr std::array kFamilies = {
    row<plan_ring_all_reduce>(kAllReduce, "ring"),
    row<plan_doubling>(kAllReduce, "doubling"),
    row<plan_halving_doubling>(kAllReduce, "halving_doubling"),
    Family{"direct", kAllReduce, true, supports_any, direct_all_reduce},
    row<plan_gather_all>(kAllReduce, "gather_all"),
    row<plan_ring_reduce_scatter>(kReduceScatter, "ring"),
    row<plan_direct_reduce_scatter>(kReduceScatter, "direct"),
    row<plan_ring_all_gather>(kAllGather, "ring"),
    row<plan_direct_all_gather>(kAllGather, "direct"),
    row<plan_binomial_broadcast>(kBroadcast, "binomial"),
    row<plan_direct_broadcast>(kBroadcast, "direct"),
    row<plan_binomial_reduce>(kReduce, "binomial"),
    row<plan_direct_reduce>(kReduce, "direct"),
    row<plan_pairwise>(kAllToAll, "pairwise"),
    row<plan_direct_all_to_all>(kAllToAll, "direct"),
    row<plan_direct_gather>(kGather, "direct"),
    row<plan_direct_scatter>(kScatter, "direct"),
    row<plan_doubling>(kBarrier, "doubling"),
    row<plan_gather_all>(kBarrier, "gather_all"),
};
static_assert(std::ranges::is_sorted(kFamilies, {}, &Family::kind));

}  // namespace

std::span<const Family> families(CollectiveKind kind) {
  auto [first, last] = std::ranges::equal_range(kFamilies, kind, {}, &Family::kind);
  return {first, last};
}

const Family* find_family(CollectiveKind kind, std::string_view name) {
  for (const Family& family : families(kind)) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

}  // namespace braid
