// SPDX-License-Identifier: Apache-2.0
// How a family for ranks becomes one for hosts: a schedule drawn for as many nodes as there are hosts is run by
// one rank of each.
#pragma once

#include <vector>

#include "schedule/builder.h"

namespace braid {

struct Between {
  const Schedule& schedule;    // its rank h is host h
  std::vector<Node> carriers;  // the rank that stands for each host, then the aggregators
  int first_chunk = 0;         // its chunk 0 among those of the whole
};

size_t most_rounds(const Schedule& schedule);  // of the node that has the most

// Adds what `host` (or an aggregator) does in round `round`, if it has that many, to the open round of its
// carrier. `inputs` is the memory in which the carrier has what the schedule takes for its input; a copy onto
// itself is left out.
void add_round(Builder& builder, const Between& between, int host, size_t round, Buffer inputs);

}  // namespace braid
