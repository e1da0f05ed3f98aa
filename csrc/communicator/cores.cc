// SPDX-License-Identifier: Apache-2.0
#include "communicator/cores.h"

#include <sched.h>

#include "memory/card.h"

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
    if (const auto core = parse_number<int>(number)) cores.insert(*core);
  }
}

}  // namespace braid
