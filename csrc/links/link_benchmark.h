// SPDX-License-Identifier: Apache-2.0
// Measures what joins the hosts of a group: how long a message takes, and what each host's NIC can send to all others
// together and receive from all others together. There are two probes per host, one after another, so that they do
// not disturb each other, and all of it twice, of which the faster counts. And whether NICs pass a burst at once after
// a pause: the largest of a few messages that needs less than half of the time that their rates call for.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/look_up.h"
#include "base/status.h"
#include "schedule/collective.h"
#include "topology/topology.h"
#include "transport/mailbox.h"

namespace braid {

struct LinkBenchmarkResult {
  Topology topology;
  bool measured = false;  // or known before
};

// The same on all ranks, to the last bit: the first rank puts it together. Hosts whose rates differ by less than a
// noisy measurement tells apart are said to be alike. `hosts` has every rank's host, numbered by first appearance;
// `within_host` is taken over as it is. `known` is for the first rank: a topology's text, which all then get without
// any measuring; "" measures. REQUIRES: at least two hosts. What else uses the NICs meanwhile makes them look slower.
Result<LinkBenchmarkResult> benchmark_links(Mailbox& mailbox, DoorbellWord& bell, Node rank,
                                            const std::vector<int>& hosts, Link within_host,
                                            const std::string& known, Deadline deadline,
                                            const GiveUp& give_up = {});

// Rates, the fastest first or not: those within 12 % below the fastest of a group become the group's mean.
std::vector<double> without_noise(const std::vector<double>& rates);

}  // namespace braid
