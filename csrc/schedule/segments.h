// SPDX-License-Identifier: Apache-2.0
// How a large operation is cut into segments. Each segment is a complete run of the schedule. The executor and the
// cost model both use these functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace braid {

struct Segments {
  size_t grain_bytes = 0;  // bytes of the vector, or of each block, in a segment; the last segment may have fewer
  int64_t count = 0;
};

// REQUIRES (both): no size is 0. A vector is cut into equal parts of about `aimed_bytes`, so that no short part is
// left. Parts are whole cache lines, so whole elements.
Segments cut_vector(size_t bytes, size_t aimed_bytes);
// Cuts blocks, each of which is one chunk. The longest block has `longest_bytes`; all blocks have the same cuts.
// REQUIRES: chunk_bytes % 64 == 0.
Segments cut_blocks(size_t longest_bytes, size_t chunk_bytes);

// Returns the number of segments of an operation, at least 1, if `chunk_bytes` is the size to aim at for a chunk
// of a segment. `bytes` is the size of the vector, or of all ranks' blocks, which are taken as equally large.
// REQUIRES: bytes >= 0, chunk_bytes > 0.
int64_t segments_of(const Schedule& schedule, int64_t bytes, int64_t chunk_bytes);

}  // namespace braid
