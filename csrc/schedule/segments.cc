// SPDX-License-Identifier: Apache-2.0
#include "schedule/segments.h"

#include <algorithm>

namespace braid {
namespace {

constexpr size_t kLine = 64;

size_t divided_up(size_t value, size_t by) { return value / by + (value % by != 0 ? 1 : 0); }

}  // namespace

Segments cut_vector(size_t bytes, size_t aimed_bytes) {
  const size_t parts = divided_up(bytes, aimed_bytes);
  const size_t grain_bytes = std::min(bytes, divided_up(bytes / parts + 1, kLine) * kLine);
  return {grain_bytes, static_cast<int64_t>(divided_up(bytes, grain_bytes))};
}

Segments cut_blocks(size_t longest_bytes, size_t chunk_bytes) {
  const size_t grain_bytes = std::min(chunk_bytes, divided_up(longest_bytes, kLine) * kLine);
  return {grain_bytes, static_cast<int64_t>(divided_up(longest_bytes, grain_bytes))};
}

int64_t segments_of(const Schedule& schedule, int64_t bytes, int64_t chunk_bytes) {
  if (bytes == 0) return 1;
  const auto size = static_cast<size_t>(bytes);
  const auto chunk = static_cast<size_t>(chunk_bytes);
  if (is_vector(schedule.collective.kind)) {
    return cut_vector(size, chunk * static_cast<size_t>(schedule.chunks)).count;
  }
  return cut_blocks(divided_up(size, static_cast<size_t>(schedule.collective.ranks)), chunk).count;
}

}  // namespace braid
