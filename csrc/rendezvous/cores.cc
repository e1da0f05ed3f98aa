// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/cores.h"

#include <sched.h>

#include <algorithm>

#include "memory/handle_text.h"

namespace braid {

std::string usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += (text.empty() ? "" : ",") + std::to_string(core);
  }
  return text;
}

void add_cores(const std::string& text, std::set<int>& cores) {
  for (const std::string_view number : split(text, ',')) {
    const auto core = parse_number<int>(number);
    if (core && *core >= 0 && *core < CPU_SETSIZE) cores.insert(*core);
  }
}

std::string machine_of(const std::string& host) {
  // "<boot id> <IPC namespace>": the boot id is the machine. A host that the user named is a machine of its own.
  return host.starts_with("set:") ? host : host.substr(0, host.find(' '));
}

double Crowd::ranks_per_core() const {
  return static_cast<double>(ranks) / static_cast<double>(std::max<size_t>(cores.size(), 1));
}

std::map<std::string, Crowd> crowds_of(const std::vector<Place>& places) {
  std::map<std::string, Crowd> crowds;
  for (const Place& place : places) {
    Crowd& crowd = crowds[machine_of(place.host)];
    ++crowd.ranks;
    add_cores(place.cores, crowd.cores);
  }
  return crowds;
}

double most_ranks_per_core(const std::map<std::string, Crowd>& crowds) {
  double most = 1;
  for (const auto& [machine, crowd] : crowds) most = std::max(most, crowd.ranks_per_core());
  return most;
}

}  // namespace braid
