// SPDX-License-Identifier: Apache-2.0
// What one NIC can pass: all other hosts send to it, or it sends to all of them, for a short while.
#pragma once

#include <vector>

#include "base/status.h"
#include "links/control_channel.h"

namespace braid {

// Called by `one` and by all `others`, one rank per host, at the same time. The bytes per second that `one` sent to
// the others together, or received from them, are counted by `one` alone, in one span of time: pieces that were
// acknowledged, or that came. 0 on the others. A tenth of a second on fast links; on slow ones up to half a second.
// Uses one step of the control channel.
Result<double> probe_rate(ControlChannel& control, Node rank, Node one, const std::vector<Node>& others,
                          bool outwards);

}  // namespace braid
