// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

// Which ranks share a host. Hosts are numbered by first appearance, whatever numbers they came with.
class Hosts {
 public:
  // Empty: each rank on a host of its own; those of aggregators are not looked at. REQUIRES: check_hosts()
  // accepted them.
  explicit Hosts(int ranks, const std::vector<int>& hosts = {});

  int count() const { return static_cast<int>(ranks_.size()); }
  const std::vector<Node>& ranks(int host) const { return ranks_[host]; }  // in ascending order
  int size(int host) const { return static_cast<int>(ranks_[host].size()); }
  int most() const;  // ranks on the largest
  int of(Node rank) const { return of_[rank]; }
  int local(Node rank) const { return local_[rank]; }  // the rank's place among those of its host
  // The rank of `host` that deals with what is `rank`'s: itself on its own host.
  Node carrier(int host, Node rank) const { return ranks_[host][local_[rank] % size(host)]; }
  std::vector<Node> in_order() const;  // all ranks, host by host

 private:
  std::vector<std::vector<Node>> ranks_;
  std::vector<int> of_;
  std::vector<int> local_;
};

// kInvalidArgument unless `hosts` is empty or has a number for every rank and aggregator, none below 0.
Status check_hosts(const Collective& collective, int aggregators, const std::vector<int>& hosts);

}  // namespace braid
