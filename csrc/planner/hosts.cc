// SPDX-License-Identifier: Apache-2.0
#include "planner/hosts.h"

#include <algorithm>
#include <map>
#include <string>

namespace braid {

Hosts::Hosts(int ranks, const std::vector<int>& hosts) : of_(ranks), local_(ranks) {
  std::map<int, int> number;  // the new number, by the caller's number of the host
  for (Node rank = 0; rank < ranks; ++rank) {
    int known_as = hosts.empty() ? rank : hosts[rank];
    int host = number.try_emplace(known_as, static_cast<int>(number.size())).first->second;
    if (host == count()) ranks_.emplace_back();
    of_[rank] = host;
    local_[rank] = size(host);
    ranks_[host].push_back(rank);
  }
}

int Hosts::most() const {
  int most = 0;
  for (int host = 0; host < count(); ++host) most = std::max(most, size(host));
  return most;
}

std::vector<Node> Hosts::in_order() const {
  std::vector<Node> order;
  for (const std::vector<Node>& ranks : ranks_) order.insert(order.end(), ranks.begin(), ranks.end());
  return order;
}

Status check_hosts(const Collective& collective, int aggregators, const std::vector<int>& hosts) {
  if (hosts.empty()) return {};
  if (hosts.size() != static_cast<size_t>(collective.ranks) + static_cast<size_t>(aggregators)) {
    return {Code::kInvalidArgument,
            std::to_string(hosts.size()) + " hosts for " + nodes_text(collective.ranks, aggregators)};
  }
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] >= 0) continue;
    return {Code::kInvalidArgument,
            "r" + std::to_string(rank) + " has host " + std::to_string(hosts[rank]) + ", must be 0 or more"};
  }
  return {};
}

}  // namespace braid
