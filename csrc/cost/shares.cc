// SPDX-License-Identifier: Apache-2.0
#include "cost/shares.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid {
namespace {

constexpr double kUnits = 1 << 20;

// Bytes per second of a node's card in its slower direction. A card is as fast as its fastest link: a slower one
// is slow for what is at the other end. 0 when a link costs nothing per byte.
double card_bytes_per_s(const Topology& topology, int node, bool several_hosts) {
  double out_s = std::numeric_limits<double>::infinity();
  double in_s = out_s;
  for (int other = 0; other < topology.nodes(); ++other) {
    bool same_host = topology.host(other) == topology.host(node);
    if (other == node || (several_hosts && same_host)) continue;
    out_s = std::min(out_s, topology.link(node, other).beta_s_per_byte);
    in_s = std::min(in_s, topology.link(other, node).beta_s_per_byte);
  }
  double slower_s = std::max(out_s, in_s);
  return slower_s > 0 ? 1 / slower_s : 0;
}

bool has_several_hosts(const Topology& topology) {
  for (int node = 1; node < topology.nodes(); ++node) {
    if (topology.host(node) != topology.host(0)) return true;
  }
  return false;
}

}  // namespace

std::vector<uint64_t> optimal_shares(const Topology& topology) {
  int n = topology.nodes();
  if (n < 3) return {};
  std::vector<double> card(n);
  double sum = 0;
  bool several_hosts = has_several_hosts(topology);
  for (int node = 0; node < n; ++node) sum += card[node] = card_bytes_per_s(topology, node, several_hosts);
  auto [least, most] = std::minmax_element(card.begin(), card.end());
  if (*least <= 0 || *most <= *least * 1.0001) return {};

  double time_s = std::max(1 / *least, 2 * (n - 1) / sum);  // for a vector of one byte
  std::vector<uint64_t> shares(n);
  uint64_t total = 0;
  for (int node = 0; node < n; ++node) {
    shares[node] = static_cast<uint64_t>(std::llround(kUnits * (time_s * card[node] - 1) / (n - 2)));
    total += shares[node];
  }
  if (total == 0) return {};
  return shares;
}

}  // namespace braid
