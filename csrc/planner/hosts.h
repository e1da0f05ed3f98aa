// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

// Which ranks share a host. Hosts are renumbered by first appearance.
class Hosts {
 public:
  // `hosts` has the host of every rank; empty: each rank has a host of its own. The hosts of aggregators are
  // ignored. REQUIRES: check_hosts() accepted `hosts`.
  explicit Hosts(int ranks, const std::vector<int>& hosts = {});

  int count() const { return static_cast<int>(ranks_.size()); }
  const std::vector<Node>& ranks(int host) const { return ranks_[host]; }  // in ascending order
  int size(int host) const { return static_cast<int>(ranks_[host].size()); }
  int most() const;  // the number of ranks on the largest host
  int of(Node rank) const { return of_[rank]; }
  int local(Node rank) const { return local_[rank]; }  // the rank's place among the ranks of its host
  // The rank of `host` that handles the data of `rank`. On its own host this is `rank` itself.
  Node carrier(int host, Node rank) const { return ranks_[host][local_[rank] % size(host)]; }
  std::vector<Node> in_order() const;  // all ranks, host by host

 private:
  std::vector<std::vector<Node>> ranks_;
  std::vector<int> of_;
  std::vector<int> local_;
};

// kInvalidArgument unless `hosts` is empty, or has a number of 0 or more for every rank and aggregator.
Status check_hosts(const Collective& collective, int aggregators, const std::vector<int>& hosts);

}  // namespace braid
