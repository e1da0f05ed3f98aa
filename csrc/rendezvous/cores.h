// SPDX-License-Identifier: Apache-2.0
// Which cores a process may run on: launchers may pin every rank to cores of its own, so one rank's do not tell whether
// the ranks of a host outnumber its cores.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace braid {

// The numbers of the cores that this process may use, as "0,1,5"; empty where the kernel does not say.
std::string usable_cores();
// Adds the cores of such a text to the set; what is no number is left out.
void add_cores(const std::string& text, std::set<int>& cores);

// The machine behind a host's identity (endpoint.h): containers of one machine are several hosts, and share its cores.
std::string machine_of(const std::string& host);

// What a rank tells of where it runs: its host's identity, and its cores as usable_cores() wrote them.
struct Place {
  std::string host;
  std::string cores;
};
// The ranks of one machine.
struct Crowd {
  size_t ranks = 0;
  std::set<int> cores;  // that they may use together
  double ranks_per_core() const;
};
// By machine.
std::map<std::string, Crowd> crowds_of(const std::vector<Place>& places);
// How many ranks share a core where most do, at least 1.
double most_ranks_per_core(const std::map<std::string, Crowd>& crowds);

}  // namespace braid
