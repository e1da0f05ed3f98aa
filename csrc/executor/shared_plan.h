// SPDX-License-Identifier: Apache-2.0
// The plan by which a schedule runs over boards, when all its nodes share memory: the order in which segments take
// turns, and their largest size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/layout.h"
#include "verify/verify.h"

namespace braid {

// The order is the same on all nodes, so that messages need no names. Segments overlap: at turn t segment g is in
// its round t - g * stride, the oldest segment first. A turn first posts the messages of all its rounds, then waits
// for those of the others. So with a stride of 1 the next segment's messages are on their way while this one's
// results are sent around; long schedules would keep too much in flight and run segment after segment.
struct SharedPlan {
  bool possible = false;   // a turn fits on a board
  size_t chunk_bytes = 0;  // of one segment, at most; a multiple of 64
  int64_t stride = 1;      // turns from one segment to the next
  bool uses_scratch = false;
  bool moves_only = true;  // reduces nothing
  // Vectors and blocks of this size and more do not go through the bounce buffer: their reader copies them out of
  // the sender's memory.
  size_t lend_from = Layout::kNever;
};

// What the host offers its ranks.
struct Host {
  size_t bounce_bytes = 0;
  bool crowded = false;   // ranks outnumber cores
  bool readable = false;  // every rank can read every other's memory
};

// A pure function of its arguments.
SharedPlan plan_shared(const VerifiedSchedule& verified, const Host& host);

}  // namespace braid
