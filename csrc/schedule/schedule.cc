// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

namespace braid {

std::vector<int64_t> chunk_offsets(const Schedule& schedule, int64_t count) {
  using Wide = unsigned __int128;
  const auto& shares = schedule.shares;
  Wide total = 0;
  for (uint64_t share : shares) total += share;
  bool equal = total == 0 || shares.size() != static_cast<size_t>(schedule.chunks);
  if (equal) total = static_cast<Wide>(schedule.chunks);

  std::vector<int64_t> offsets(static_cast<size_t>(schedule.chunks) + 1, 0);
  Wide before = 0;
  for (size_t chunk = 0; chunk + 1 < offsets.size(); ++chunk) {
    before += equal ? 1 : shares[chunk];
    offsets[chunk + 1] = static_cast<int64_t>(before * static_cast<Wide>(count) / total);
  }
  return offsets;
}

}  // namespace braid
