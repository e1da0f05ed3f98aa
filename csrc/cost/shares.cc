// SPDX-License-Identifier: Apache-2.0
#include "cost/shares.h"

#include <algorithm>
#include <cmath>

#include "cost/split.h"

namespace braid {
namespace {

constexpr double kUnits = 1 << 20;
constexpr double kWorthIt = 1.01;

// What the cards of the hosts carry when host k stands for `members[k]` of the ranks.
std::vector<OwnerUse> uses_of(const Topology& topology, const std::vector<int>& members) {
  double n = 0;
  for (int count : members) n += count;
  std::vector<OwnerUse> uses(members.size());
  for (int node = 0; node < topology.nodes(); ++node) {
    const int host = topology.numbered_hosts()[node];
    const double g = members[host];
    const Topology::Card card = topology.card(topology.host(node));
    uses[host] = {{g * card.up_s_per_byte, (n - 2 * g) * card.up_s_per_byte},
                  {g * card.down_s_per_byte, (n - 2 * g) * card.down_s_per_byte}};
  }
  return uses;
}

double time_with_equal_shares_s(const std::vector<OwnerUse>& uses, const std::vector<int>& members) {
  double n = 0;
  for (int count : members) n += count;
  double time_s = 0;
  for (size_t host = 0; host < uses.size(); ++host) {
    const double share = members[host] / n;
    for (const CardUse& use : {uses[host].up, uses[host].down}) {
      time_s = std::max(time_s, use.fixed_s + use.per_share_s * share);
    }
  }
  return time_s;
}

// The share of each member of each host; empty when equal ones are as good.
std::vector<double> member_shares(const Topology& topology, const std::vector<int>& members) {
  if (members.size() < 2) return {};
  const std::vector<OwnerUse> uses = uses_of(topology, members);
  const bool alike = std::all_of(uses.begin(), uses.end(), [&](const OwnerUse& use) { return use == uses[0]; });
  if (alike) return {};
  const Split best = least_time_split(uses);
  if (time_with_equal_shares_s(uses, members) <= kWorthIt * best.seconds_per_byte) return {};
  std::vector<double> shares;
  for (size_t host = 0; host < members.size(); ++host) shares.push_back(best.shares[host] / members[host]);
  return shares;
}

uint64_t weight_of(double share) { return static_cast<uint64_t>(std::llround(kUnits * share)); }

}  // namespace

std::vector<uint64_t> rank_shares(const Topology& topology) {
  const std::vector<double> shares = member_shares(topology, topology.host_sizes());
  if (shares.empty()) return {};
  std::vector<uint64_t> weights;
  for (int host : topology.numbered_hosts()) weights.push_back(weight_of(shares[host]));
  return weights;
}

std::vector<uint64_t> host_shares(const Topology& topology) {
  std::vector<uint64_t> weights;
  for (double share : member_shares(topology, std::vector<int>(topology.host_count(), 1))) {
    weights.push_back(weight_of(share));
  }
  return weights;
}

}  // namespace braid
