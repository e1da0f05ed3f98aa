// SPDX-License-Identifier: Apache-2.0
// Remembers the links between hosts that earlier groups measured, in this process and in a file for other
// processes of this user. So the same hosts are measured once a day, and not for every group.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace braid {

// Thread-safe. Works without the file, if it cannot be read or written.
class LinkMemory {
 public:
  // `file`: where links are remembered beyond this process; "" for nowhere.
  explicit LinkMemory(std::string file) : file_(std::move(file)) {}

  // The links between these ranks. `hosts`: the host of every rank, numbered by first appearance. `names`: the
  // address of every rank's host. None unless all hosts were measured together, alone or with more hosts. A NIC
  // looks only as fast as its peers, so a measurement with more hosts is preferred, and one with fewer does not
  // count.
  std::optional<Topology> recall(const std::vector<std::string>& names, const std::vector<int>& hosts,
                                 Link within_host);
  void keep(const std::vector<std::string>& names, const Topology& topology);
  // Forgets everything that was measured with any of these hosts: their links have changed.
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
