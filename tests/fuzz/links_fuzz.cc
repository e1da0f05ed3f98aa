// SPDX-License-Identifier: Apache-2.0
// What is known of the links between hosts: the file that earlier processes left (links/link_memory.cc), and
// what each rank says that a file of the user states (stated_links.cc).
//
//   byte 0        which of the two
//   the rest      the file, where NOW stands for the time of day; or a few ranks: host, and two bytes for its NIC
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "fuzz/targets.h"
#include "links/link_memory.h"
#include "options/stated_links.h"

namespace braid::fuzz {
namespace {

constexpr Link kWithin{5e-7, 1e-10};

std::string path_of_links() {
  static const std::string path = [] {
    const char* folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    return std::string(folder) + "/braid_links_fuzz." + std::to_string(::getpid());
  }();
  return path;
}

class File {
 public:
  explicit File(const std::string& text) { std::ofstream(path_of_links(), std::ios::binary) << text; }
  ~File() { (void)::unlink(path_of_links().c_str()); }
};

std::string with_the_time(std::string text) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string time = std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  for (size_t at = 0; (at = text.find("NOW", at)) != std::string::npos; at += time.size()) {
    text.replace(at, 3, time);
  }
  return text;
}

void check_recalled(const Topology& topology, const std::vector<int>& hosts) {
  require(topology.nodes() == static_cast<int>(hosts.size()), "as many nodes as were asked for");
  require(topology.within_host() == kWithin, "the links inside a host are the caller's");
  for (const int host : hosts) {
    const Topology::Nic nic = topology.nic(host);
    for (const double value : {nic.up_s_per_byte, nic.down_s_per_byte, topology.between_hosts().alpha_s}) {
      require(value > 0 && value < 1e9, "what is recalled is a time");
    }
  }
  require(topology.burst_bytes() >= 0 && topology.burst_bytes() < 1e9, "what is recalled is a size");
}

void remember(Reader& reader) {
  const File file(with_the_time(reader.text()));
  const std::vector<std::string> names = {"a", "b", "a"};
  const std::vector<int> hosts = {0, 1, 0};
  if (const auto known = LinkMemory(path_of_links()).recall(names, hosts, kWithin)) check_recalled(*known, hosts);

  Topology found(hosts, kWithin, {2e-5, 8e-9});
  found.set_nic(1, {4e-8, 8e-9});
  LinkMemory(path_of_links()).keep(names, found);
  const auto known = LinkMemory(path_of_links()).recall(names, hosts, kWithin);
  require(known.has_value(), "what is kept is recalled, whatever the file was before");
  check_recalled(*known, hosts);
  LinkMemory(path_of_links()).forget({"b"});
  require(!LinkMemory(path_of_links()).recall(names, hosts, kWithin), "what is forgotten is not recalled");
}

void state(Reader& reader) {
  std::vector<int> hosts;
  std::vector<Topology::Nic> nics;
  do {
    hosts.push_back(static_cast<int>(reader.one_of(5)) * 1000);
    nics.push_back({static_cast<double>(reader.byte()) * 1e-9, static_cast<double>(reader.byte()) * 1e-9});
  } while (!reader.empty() && hosts.size() < 32);
  const auto topology = stated_topology(hosts, kWithin, {2e-5, 8e-9}, nics);
  bool agree = true;
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (size_t k = 0; k < i; ++k) agree &= hosts[i] != hosts[k] || nics[i] == nics[k];
  }
  require(topology.ok() == agree, "exactly what all ranks of a host agree on is accepted");
  if (!topology.ok()) return;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    require(topology.value().nic(hosts[rank]) == nics[rank], "each host has the NIC that its ranks state");
  }
}

}  // namespace

void links_target(Input input) {
  Reader reader(input);
  reader.byte() % 2 == 0 ? remember(reader) : state(reader);
}

}  // namespace braid::fuzz
