// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <numeric>

namespace braid {

Topology::Topology(std::vector<int> hosts, Link within_host, Link between_hosts)
    : hosts_(std::move(hosts)), within_host_(within_host), between_hosts_(between_hosts) {}

const Link& Topology::usual_link(int from, int to) const {
  return hosts_[from] == hosts_[to] ? within_host_ : between_hosts_;
}

const Link& Topology::link(int from, int to) const {
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

void Topology::set_card(int node, Link link) {
  for (int other = 0; other < nodes(); ++other) {
    if (other == node) continue;
    set_link(node, other, link);
    set_link(other, node, link);
  }
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
