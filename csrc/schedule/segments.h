// SPDX-License-Identifier: Apache-2.0
// How a large operation is cut into segments, each a complete run of the schedule: by whoever runs it, and by
// whoever prices it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace braid {

struct Segments {
  size_t grain_bytes = 0;  // of the vector, or of each block; the last segment may have less
  int64_t count = 0;
};

// REQUIRES (both): no size is 0. A vector is cut into equal parts of about `aimed_bytes` rather than into full
// ones and a short rest; whole cache lines, so whole elements.
Segments cut_vector(size_t bytes, size_t aimed_bytes);
// Blocks of which the longest has `longest_bytes` are cut alike, a block per chunk.
// REQUIRES: chunk_bytes % 64 == 0.
Segments cut_blocks(size_t longest_bytes, size_t chunk_bytes);

// Into how many segments an operation is cut when a chunk of a segment aims at `chunk_bytes`, at least 1. `bytes`
// are those of the vector, or of all ranks' blocks, taken to be alike. REQUIRES: bytes >= 0, chunk_bytes > 0.
int64_t segments_of(const Schedule& schedule, int64_t bytes, int64_t chunk_bytes);

}  // namespace braid
