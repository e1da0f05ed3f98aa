// SPDX-License-Identifier: Apache-2.0
// Measures one NIC: all other hosts send to it, or it sends to all of them, for a short while.
#pragma once

#include <vector>

#include "base/status.h"
#include "links/control_channel.h"

namespace braid {

// Called at the same time by `one` and by all `others`, one rank per host. Returns the bytes per second that `one`
// sent to the others together, or received from them; 0 on the others. `one` counts pieces that were acknowledged,
// or that came, in one span of time. Takes a tenth of a second on fast links, and up to half a second on slow
// ones. Uses one step of the control channel.
Result<double> probe_rate(ControlChannel& control, Node rank, Node one, const std::vector<Node>& others,
                          bool outwards);

}  // namespace braid
