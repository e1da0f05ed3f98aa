// SPDX-License-Identifier: Apache-2.0
// Measures the links between the hosts of a group. Latency: how long a message takes. Rates: how fast each host's
// NIC sends to all other hosts together, and receives from all of them together. Burst: how many bytes NICs pass
// at once after a pause.
// Two probes per host measure the rates, one after another, so that they do not disturb each other. Each is run
// twice; the faster run counts. The burst is the largest of a few messages that takes less than half of the time
// that the rates call for.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/interruptible_wait.h"
#include "base/status.h"
#include "schedule/collective.h"
#include "topology/topology.h"
#include "transport/mailbox.h"

namespace braid {

struct LinkBenchmarkResult {
  Topology topology;
  bool measured = false;  // false: the links were known before
};

// Called by all ranks; the result is the same on all, to the last bit, since the first rank puts it together.
// Hosts get equal rates if noise alone may explain the difference. `hosts`: the host of every rank, numbered by
// first appearance. `within_host` is copied into the result. `known`, on the first rank: a topology's text; all
// ranks get this topology and nothing is measured. "" measures.
// REQUIRES: at least two hosts. Other traffic of the NICs makes them look slower.
Result<LinkBenchmarkResult> benchmark_links(Mailbox& mailbox, DoorbellWord& bell, Node rank,
                                            const std::vector<int>& hosts, Link within_host,
                                            const std::string& known, Deadline deadline,
                                            const GiveUp& give_up = {});

// Removes noise from rates, in any order: rates up to 12 % below the fastest of a group become the group's mean.
std::vector<double> without_noise(const std::vector<double>& rates);

}  // namespace braid
