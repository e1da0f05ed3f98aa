// SPDX-License-Identifier: Apache-2.0
// The topology of a cluster: the host of each node, and how long a message takes from each node to each other.
// Also the time that processors take to add and to code data, if it is known.
#pragma once

#include <functional>
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

// The memory of one host passes a byte in this time: one core copies it, or adds it to another. A usual machine.
inline constexpr double kMemory_s_per_byte = 1.5e-10;
// The queue before a NIC, in a switch, is taken to hold the bytes that the NIC receives in this time.
inline constexpr double kNicQueue_s = 10e-3;

class Topology {
 public:
  // A host's NIC, which all nodes of the host share. `up` goes to other hosts, `down` comes from them.
  struct Nic {
    double up_s_per_byte = 0;
    double down_s_per_byte = 0;

    bool operator==(const Nic&) const = default;
  };

  // Seconds per byte by kind of work.
  using Work = std::map<std::string, double, std::less<>>;

  // `hosts` has the host number of every node. REQUIRES: no number in the links is negative or not finite.
  Topology(std::vector<int> hosts, Link within_host, Link between_hosts);

  int nodes() const { return static_cast<int>(hosts_.size()); }
  int host(int node) const { return hosts_[node]; }
  int host_count() const { return static_cast<int>(host_sizes_.size()); }
  // The host of every node, numbered from 0 by first appearance.
  const std::vector<int>& numbered_hosts() const { return numbered_hosts_; }
  // The number of nodes of each numbered host.
  const std::vector<int>& host_sizes() const { return host_sizes_; }
  const Link& within_host() const { return within_host_; }
  const Link& between_hosts() const { return between_hosts_; }

  // The NIC of a host; as fast as `between_hosts` both ways unless set_nic() was called. REQUIRES (both): `host`
  // is the host of a node.
  Nic nic(int host) const;
  void set_nic(int host, Nic nic);
  // The NICs that differ from `between_hosts`, by host.
  const std::map<int, Nic>& special_nics() const { return nics_; }

  // The bytes that a NIC passes at once after a pause, whatever its rate: the depth of a token bucket, as clouds
  // use them. 0: the NIC is a plain wire, or nothing is known. REQUIRES: finite, and not negative.
  double burst_bytes() const { return burst_bytes_; }
  void set_burst_bytes(double bytes) { burst_bytes_ = bytes; }

  // A link between hosts is as fast as the slower of the two NICs at its ends, unless set_link() was called.
  // REQUIRES (both): 0 <= from, to < nodes(), and from != to.
  Link link(int from, int to) const;
  // Sets a link of its own between two nodes: for example a slow line between two sites. A link that equals what
  // the hosts and NICs say is not kept, so set the NICs first.
  void set_link(int from, int to, Link link);
  // The links that differ from what the hosts of their nodes and the NICs say.
  const std::map<std::pair<int, int>, Link>& special_links() const { return special_; }

  // Seconds per byte that the slowest processor takes for a kind of work; `assumed` if the rate is not known. The
  // name is one word: "reduce", a codec's name, or a sparse codec's name with "_1000" appended. REQUIRES
  // (set_work): the seconds are finite, and not negative.
  double work_s_per_byte(std::string_view name, double assumed) const {
    const auto found = work_.find(name);
    return found == work_.end() ? assumed : found->second;
  }
  void set_work(std::string name, double s_per_byte) { work_[std::move(name)] = s_per_byte; }
  void set_work(Work work) { work_ = std::move(work); }
  const Work& work() const { return work_; }

  // The first `nodes` nodes alone, with their NICs and links. REQUIRES: 0 < nodes <= this->nodes().
  Topology first(int nodes) const;

  // The topology as it looks if messages between hosts have `ratio` times their bytes: NICs and links between
  // hosts look faster by 1/ratio, and the burst larger. REQUIRES: ratio > 0.
  Topology with_messages_of(double ratio) const;

  bool operator==(const Topology&) const = default;

 private:
  Link usual_link(int from, int to) const;

  std::vector<int> hosts_;
  std::vector<int> numbered_hosts_;
  std::vector<int> host_sizes_;
  Link within_host_;
  Link between_hosts_;
  double burst_bytes_ = 0;
  std::map<int, Nic> nics_;                      // never equal to the usual one
  std::map<std::pair<int, int>, Link> special_;  // never equal to the usual one
  Work work_;
};

// Every node on a host of its own, and all links alike.
Topology uniform(int nodes, double alpha_s, double beta_s_per_byte);
// All nodes share memory, as on an ordinary server: 0.5 us, 10 GB/s.
Topology one_host(int nodes);

// The text form round-trips. It has a burst and work only if they are known, and NICs and links only if they
// differ from the lines before:
//
//   topology hosts=0,0,1
//   within alpha_s=5e-07 beta_s_per_byte=1e-10
//   between alpha_s=2e-05 beta_s_per_byte=8e-09
//   burst bytes=4096
//   work int8 s_per_byte=1.5e-10
//   card 1 up_s_per_byte=4e-08 down_s_per_byte=8e-09
//   link 0 -> 2 alpha_s=2e-05 beta_s_per_byte=4e-07
std::string to_text(const Topology& topology);
// kInvalidArgument with the line number and the text that was expected there.
Result<Topology> topology_from_text(std::string_view text);
// A NIC alone: "up_s_per_byte=4e-08 down_s_per_byte=8e-09". Round-trips, too.
std::string to_text(const Topology::Nic& nic);
Result<Topology::Nic> nic_from_text(std::string_view text);

}  // namespace braid
