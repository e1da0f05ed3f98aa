// SPDX-License-Identifier: Apache-2.0
// Predicts how long a schedule takes over boards (docs/intra_host.md), between ranks that share memory. There are no
// links: processors read and write memory, and this is all that takes time. So the time is
//
//   turns * round_s  +  touched bytes * touch_s_per_byte * waits  +  new bytes * fetch_s_per_byte * missing
//
//   touched  Bytes that a rank reads and writes: 2 per byte of a copy, k + 1 per byte of a sum of k sources. A sender
//            copies a message to its board once for all receivers. It does not touch a message that it lends.
//   new      Bytes of a rank's input and output. An operation on a vector is taken to run in place.
//   missing  The part of all ranks' new bytes that the shared cache does not hold.
//   waits    1 if every rank has a core of its own. Ranks that share a core also wait for ranks that do not run.
//
// If ranks work at the same time, the busiest rank counts. If ranks share cores, at least the work of all ranks
// divided by the cores counts.
#pragma once

#include <cstdint>
#include <limits>

#include "schedule/schedule.h"

namespace braid {

// Of one core, while the other cores do the same work.
struct BoardRates {
  double touch_s_per_byte = 0;  // reads or writes a byte that is in a cache.
  double fetch_s_per_byte = 0;  // in addition, if the byte must come from memory.
  double round_s = 0;           // a message of no bytes, from its sender to its receiver.
  double sharers = 1;           // ranks per core, at least 1
  double cache_bytes = 0;       // the cache that cores share
};

// How the executor cuts the operation. The fields are those of a BoardPlan.
struct BoardCut {
  int64_t chunk_bytes = 0;
  int64_t stride = 1;
  int64_t lend_from = std::numeric_limits<int64_t>::max();
};

// Returns the seconds from the common start of all ranks until the last is done. `bytes` is as in predict_s().
// Ranks with equal arguments get equal results. REQUIRES: verify() accepts the schedule; bytes >= 0; chunk_bytes > 0
// and a multiple of 64.
double predict_on_boards_s(const Schedule& schedule, int64_t bytes, const BoardCut& cut, const BoardRates& rates);

}  // namespace braid
