// SPDX-License-Identifier: Apache-2.0
// What earlier groups found out about the links between hosts, in this process and, through a file, in others of this
// user: so that the same hosts are measured once a day, and not for every group.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace braid {

// Thread-safe. A file that cannot be read or written is not missed.
class LinkMemory {
 public:
  // `file`: where to remember for longer than this process lives; "" does not.
  explicit LinkMemory(std::string file) : file_(std::move(file)) {}

  // The links of ranks on `hosts`, numbered by first appearance, at the addresses `names` (both by rank); none
  // unless all hosts were measured together. With others, or more: a NIC is seen only as fast as its peers are, so
  // what was found among more hosts is nearer to the truth, and what was found among fewer does not count.
  std::optional<Topology> recall(const std::vector<std::string>& names, const std::vector<int>& hosts,
                                 Link within_host);
  void keep(const std::vector<std::string>& names, const Topology& topology);
  // All that was found with any of these hosts: their links have changed.
  void forget(const std::vector<std::string>& names);

 private:
  struct Entry {
    int64_t found_at_s = 0;  // of the system's clock
    double alpha_s = 0;
    double burst_bytes = 0;
    Topology::Nic nic;
  };
  using Cluster = std::map<std::string, Entry>;  // by digest of its name
  void read_file();
  void write_file() const;

  const std::string file_;
  std::mutex mutex_;
  bool has_read_ = false;
  std::map<std::string, Cluster> clusters_;  // by digest of all that were measured together
};

}  // namespace braid
