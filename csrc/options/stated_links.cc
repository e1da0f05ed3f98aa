// SPDX-License-Identifier: Apache-2.0
#include "options/stated_links.h"

#include <utility>

namespace braid {

std::string in_words(const StatedLinks& stated) {
  return stated.problem.empty() ? "a file with the digest " + stated.digest : stated.problem;
}

Result<Topology> stated_topology(const std::vector<int>& hosts, Link within_host, Link between,
                                 const std::vector<Topology::Nic>& nics) {
  Topology topology(hosts, within_host, between);
  std::vector<int> first;  // lowest rank of each host
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto host = static_cast<size_t>(topology.numbered_hosts()[rank]);
    if (host == first.size()) {
      first.push_back(static_cast<int>(rank));
      topology.set_nic(hosts[rank], nics[rank]);
    } else if (nics[rank] != nics[static_cast<size_t>(first[host])]) {
      return Status(
          Code::kMismatch,
          "ranks " + std::to_string(first[host]) + " and " + std::to_string(rank) +
              " are on one host, but BRAID_LINKS has other rates for the one than for the other: do they "
              "see different host names?",
          static_cast<int>(rank));
    }
  }
  return topology;
}

}  // namespace braid
