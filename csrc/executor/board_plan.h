// SPDX-License-Identifier: Apache-2.0
// The plan for a schedule that runs over boards, if all its nodes share memory: the order of the segments, and
// their largest size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/layout.h"
#include "verify/verify.h"

namespace braid {

// The order is the same on all nodes, so messages need no names. Segments overlap: at turn t, segment g runs its
// round t - g * stride. The oldest segment comes first. A turn first posts the messages of all its rounds. Then it
// waits for the messages of the other nodes. With a stride of 1, a segment sends its inputs while the segment
// before sends its results. Long schedules run one segment at a time, because overlap would put too many messages
// in flight.
struct BoardPlan {
  bool possible = false;   // the messages of a turn fit on a board
  size_t chunk_bytes = 0;  // largest chunk of one segment; a multiple of 64
  int64_t stride = 1;      // turns from one segment to the next
  bool uses_scratch = false;
  bool moves_only = true;  // has no reduce step
  // Vectors and blocks of this size and more are lent: their reader copies them out of the sender's memory,
  // without the bounce buffer.
  size_t lend_from = Layout::kNever;
};

// Properties of the host on which the ranks run.
struct Host {
  size_t bounce_bytes = 0;
  bool crowded = false;   // ranks outnumber cores
  bool readable = false;  // every rank can read every other's memory
};

// A pure function of its arguments.
BoardPlan plan_for_boards(const VerifiedSchedule& verified, const Host& host);

}  // namespace braid
