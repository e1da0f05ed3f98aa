// SPDX-License-Identifier: Apache-2.0
// Which cores a process may run on: launchers may pin every rank to cores of its own, so one rank's do not tell whether
// the ranks of a host outnumber its cores.
#pragma once

#include <set>
#include <string>

namespace braid {

// The numbers of the cores that this process may use, as "0,1,5"; empty where the kernel does not say.
std::string usable_cores();
// Adds the cores of such a text to the set; what is no number is left out.
void add_cores(const std::string& text, std::set<int>& cores);

}  // namespace braid
