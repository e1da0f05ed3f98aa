// SPDX-License-Identifier: Apache-2.0
// Makes an algorithm for ranks into an algorithm for hosts. The schedule between hosts has one rank per host. One real
// rank of each host, the carrier, runs the host's part.
#pragma once

#include <vector>

#include "schedule/builder.h"

namespace braid {

struct Between {
  const Schedule& schedule;    // between hosts: its rank h is host h
  std::vector<Node> carriers;  // the carrier of each host, then the aggregators
  int first_chunk = 0;         // the chunk of the whole schedule that is chunk 0 here
};

size_t most_rounds(const Schedule& schedule);  // the number of rounds of the longest program

// Adds the steps of `host` (or of an aggregator) in round `round` to the open round of its carrier. Adds nothing
// if the program has fewer rounds. `inputs` is the carrier's memory that the schedule reads as its input. A copy
// of memory onto itself is left out.
void add_round(Builder& builder, const Between& between, int host, size_t round, Buffer inputs);

}  // namespace braid
