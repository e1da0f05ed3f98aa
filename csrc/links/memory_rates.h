// SPDX-License-Identifier: Apache-2.0
// Measures how fast a core of this host reads and writes. Times over boards are predicted from it (cost/boards.h).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace braid {

// Seconds per byte on one core, by the name of the work. "touch": reads or writes a byte that is in the shared cache.
// "fetch": brings a byte from memory, in addition, and writes back the byte that it displaces. Has no "fetch" on
// processors that cannot write past their caches. Measured at the first call of this process, in about 3 ms. If the
// ranks of a host call it together, they measure what they leave each other.
const Topology::Work& memory_rates();

// "touch=1.3e-11 fetch=3.9e-11". Round-trips.
std::string memory_text(const Topology::Work& rates);
// kMismatch for a text that memory_text() cannot have written, or rates that are not positive and below a microsecond.
Result<Topology::Work> memory_from_text(const std::string& text);

// The median of each rate; of two in the middle the slower, because ranks wait for each other. Empty unless all have
// the same kinds.
Topology::Work median_of(const std::vector<Topology::Work>& ranks);

}  // namespace braid
