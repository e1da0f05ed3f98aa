// SPDX-License-Identifier: Apache-2.0
// What joins the nodes: which host each is on, and how long a message takes from each to each other.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace braid {

// One direction. A message of b bytes takes alpha_s + b * beta_s_per_byte.
struct Link {
  double alpha_s = 0;
  double beta_s_per_byte = 0;

  bool operator==(const Link&) const = default;
};

class Topology {
 public:
  // `hosts` has the host number of every node. REQUIRES: no number in the links is negative or not finite.
  Topology(std::vector<int> hosts, Link within_host, Link between_hosts);

  int nodes() const { return static_cast<int>(hosts_.size()); }
  int host(int node) const { return hosts_[node]; }
  const Link& within_host() const { return within_host_; }
  const Link& between_hosts() const { return between_hosts_; }

  // REQUIRES (all): 0 <= from, to < nodes(), and from != to.
  const Link& link(int from, int to) const;
  void set_link(int from, int to, Link link);
  // All links out of and into one node, the other ways unchanged: a slow or a fast network card.
  void set_card(int node, Link link);
  // The links that are not what the hosts of their nodes say.
  const std::map<std::pair<int, int>, Link>& special_links() const { return special_; }

  bool operator==(const Topology&) const = default;

 private:
  const Link& usual_link(int from, int to) const;

  std::vector<int> hosts_;
  Link within_host_;
  Link between_hosts_;
  std::map<std::pair<int, int>, Link> special_;  // never equal to the usual one
};

// Every node on a host of its own, and all links alike.
Topology uniform(int nodes, double alpha_s, double beta_s_per_byte);
// All nodes share memory. The numbers are of an ordinary server: 0.5 us, 10 GB/s.
Topology one_host(int nodes);

// The text form round-trips:
//
//   topology hosts=0,0,1
//   within alpha_s=5e-07 beta_s_per_byte=1e-10
//   between alpha_s=2e-05 beta_s_per_byte=8e-09
//   link 0 -> 2 alpha_s=2e-05 beta_s_per_byte=4e-08
std::string to_text(const Topology& topology);
// kInvalidArgument with the line number and what was expected there.
Result<Topology> topology_from_text(std::string_view text);

}  // namespace braid
