// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <algorithm>
#include <numeric>

namespace braid {

Topology::Topology(std::vector<int> hosts, Link within_host, Link between_hosts)
    : hosts_(std::move(hosts)), within_host_(within_host), between_hosts_(between_hosts) {
  std::map<int, int> number_of;
  for (int host : hosts_) {
    const auto [found, is_new] = number_of.try_emplace(host, host_count());
    if (is_new) host_sizes_.push_back(0);
    numbered_hosts_.push_back(found->second);
    ++host_sizes_[found->second];
  }
}

Topology::Nic Topology::nic(int host) const {
  const auto found = nics_.find(host);
  if (found != nics_.end()) return found->second;
  return {between_hosts_.beta_s_per_byte, between_hosts_.beta_s_per_byte};
}

void Topology::set_nic(int host, Nic nic) {
  nics_.erase(host);
  if (nic != this->nic(host)) nics_[host] = nic;
  std::erase_if(special_, [&](const auto& entry) {
    return entry.second == usual_link(entry.first.first, entry.first.second);
  });
}

Link Topology::usual_link(int from, int to) const {
  if (hosts_[from] == hosts_[to]) return within_host_;
  if (nics_.empty()) return between_hosts_;
  return {between_hosts_.alpha_s, std::max(nic(hosts_[from]).up_s_per_byte, nic(hosts_[to]).down_s_per_byte)};
}

Link Topology::link(int from, int to) const {
  if (special_.empty()) return usual_link(from, to);
  auto found = special_.find({from, to});
  return found == special_.end() ? usual_link(from, to) : found->second;
}

void Topology::set_link(int from, int to, Link link) {
  if (link == usual_link(from, to)) {
    special_.erase({from, to});
  } else {
    special_[{from, to}] = link;
  }
}

Topology Topology::first(int nodes) const {
  Topology part({hosts_.begin(), hosts_.begin() + nodes}, within_host_, between_hosts_);
  for (int host : part.hosts_) part.set_nic(host, nic(host));
  for (const auto& [ends, link] : special_) {
    if (std::max(ends.first, ends.second) < nodes) part.set_link(ends.first, ends.second, link);
  }
  part.burst_bytes_ = burst_bytes_;
  part.work_ = work_;
  return part;
}

Topology Topology::with_messages_of(double ratio) const {
  Link between = between_hosts_;
  between.beta_s_per_byte *= ratio;
  Topology seen(hosts_, within_host_, between);
  for (const auto& [host, nic] : nics_)
    seen.set_nic(host, {nic.up_s_per_byte * ratio, nic.down_s_per_byte * ratio});
  for (const auto& [ends, link] : special_) {
    const bool inside = hosts_[ends.first] == hosts_[ends.second];
    seen.set_link(ends.first, ends.second, {link.alpha_s, link.beta_s_per_byte * (inside ? 1 : ratio)});
  }
  seen.burst_bytes_ = burst_bytes_ / ratio;
  seen.work_ = work_;
  return seen;
}

Topology uniform(int nodes, double alpha_s, double beta_s_per_byte) {
  std::vector<int> hosts(nodes);
  std::iota(hosts.begin(), hosts.end(), 0);
  Link link{alpha_s, beta_s_per_byte};
  return {std::move(hosts), link, link};
}

Topology one_host(int nodes) {
  Link link{0.5e-6, 1e-10};
  return {std::vector<int>(nodes, 0), link, link};
}

}  // namespace braid
