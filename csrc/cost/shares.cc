// SPDX-License-Identifier: Apache-2.0
#include "cost/shares.h"

#include <algorithm>
#include <cmath>

#include "cost/split.h"

namespace braid {
namespace {

constexpr double kUnits = 1 << 20;
constexpr double kLeastSpeedup = 1.01;  // smaller gains are not worth unequal shares

// The host number of every owner: first the contributing owners, then the aggregators.
struct Owners {
  std::vector<int> hosts;
  int contributing = 0;

  bool contributes(size_t owner) const { return owner < static_cast<size_t>(contributing); }
};

// Per host, the number of its owners if `all`, otherwise of its contributing owners.
std::vector<int> members(const Topology& topology, const Owners& owners, bool all) {
  std::vector<int> counts(topology.host_count(), 0);
  for (size_t owner = 0; owner < owners.hosts.size(); ++owner) {
    if (all || owners.contributes(owner)) ++counts[owners.hosts[owner]];
  }
  return counts;
}

// How long the NIC of each host is busy, by the host's share; g of the n contributing owners are on that host.
// With g = 0 the formula gives n X each way, which is right for a host with aggregators only.
std::vector<OwnerUse> uses_of(const Topology& topology, const Owners& owners) {
  const double n = owners.contributing;
  const std::vector<int> contributing = members(topology, owners, false);
  std::vector<OwnerUse> uses(contributing.size());
  for (int node = 0; node < topology.nodes(); ++node) {
    const int host = topology.numbered_hosts()[node];
    const double g = contributing[host];
    const Topology::Nic nic = topology.nic(topology.host(node));
    uses[host] = {{g * nic.up_s_per_byte, (n - 2 * g) * nic.up_s_per_byte},
                  {g * nic.down_s_per_byte, (n - 2 * g) * nic.down_s_per_byte}};
  }
  return uses;
}

double time_with_equal_shares_s(const Topology& topology, const Owners& owners,
                                const std::vector<OwnerUse>& uses) {
  const std::vector<int> all = members(topology, owners, true);
  double time_s = 0;
  for (size_t host = 0; host < uses.size(); ++host) {
    const double share = static_cast<double>(all[host]) / static_cast<double>(owners.hosts.size());
    for (const NicUse& use : {uses[host].up, uses[host].down}) {
      time_s = std::max(time_s, use.fixed_s + use.per_share_s * share);
    }
  }
  return time_s;
}

// Returns an empty vector if equal shares are as good.
std::vector<uint64_t> weights_of(const Topology& topology, const Owners& owners) {
  if (topology.host_count() < 2) return {};
  const std::vector<OwnerUse> uses = uses_of(topology, owners);
  const Split best = least_time_split(uses);
  if (time_with_equal_shares_s(topology, owners, uses) <= kLeastSpeedup * best.seconds_per_byte) return {};
  // The load of a NIC does not depend on which node of the host owns the share. Ranks own it if the host has any,
  // because a rank need not send its own contribution.
  const std::vector<int> contributing = members(topology, owners, false);
  const std::vector<int> all = members(topology, owners, true);
  std::vector<uint64_t> weights;
  for (size_t owner = 0; owner < owners.hosts.size(); ++owner) {
    const int host = owners.hosts[owner];
    const int among = owners.contributes(owner) ? contributing[host] : contributing[host] == 0 ? all[host] : 0;
    const double share = among > 0 ? best.shares[host] / among : 0;
    weights.push_back(static_cast<uint64_t>(std::llround(kUnits * share)));
  }
  return weights;
}

}  // namespace

std::vector<uint64_t> rank_shares(const Topology& topology, int aggregators) {
  return weights_of(topology, {topology.numbered_hosts(), topology.nodes() - aggregators});
}

std::vector<uint64_t> host_shares(const Topology& topology, int aggregators) {
  const std::vector<int>& hosts = topology.numbered_hosts();
  const auto first_aggregator = hosts.end() - aggregators;
  Owners owners;
  owners.contributing = 1 + *std::max_element(hosts.begin(), first_aggregator);
  for (int host = 0; host < owners.contributing; ++host) owners.hosts.push_back(host);
  owners.hosts.insert(owners.hosts.end(), first_aggregator, hosts.end());
  return weights_of(topology, owners);
}

}  // namespace braid
