// SPDX-License-Identifier: Apache-2.0
// The cores that a process may run on. Launchers may pin every rank to its own cores. So the cores of one rank do
// not tell whether a host has more ranks than cores.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace braid {

// The numbers of the cores that this process may use, as "0,1,5"; empty where the kernel does not say.
std::string usable_cores();
// Adds the cores of a usable_cores() text to the set. Ignores entries that are not core numbers.
void add_cores(const std::string& text, std::set<int>& cores);

// The machine of a host, by the host's identity (endpoint.h). Containers of one machine are several hosts, but
// share the machine's cores.
std::string machine_of(const std::string& host);

// Where a rank runs: its host's identity, and its cores as usable_cores() wrote them.
struct Place {
  std::string host;
  std::string cores;
};
// The ranks of one machine.
struct Crowd {
  size_t ranks = 0;
  std::set<int> cores;  // the cores that they may use together
  double ranks_per_core() const;
};
// The crowd of each machine, by machine_of().
std::map<std::string, Crowd> crowds_of(const std::vector<Place>& places);
// Ranks per core of the most crowded machine; at least 1.
double most_ranks_per_core(const std::map<std::string, Crowd>& crowds);

}  // namespace braid
