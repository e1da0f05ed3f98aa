// SPDX-License-Identifier: Apache-2.0
// How many bytes a ref of a schedule has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace braid {

// Of an operation of `bytes` in all. The schedule must outlive it.
class ChunkSizes {
 public:
  ChunkSizes(const Schedule& schedule, int64_t bytes)
      : schedule_(schedule), offsets_(chunk_offsets(schedule, bytes)) {}

  // The chunks of all nodes' blocks that the ref stands for: first and last + 1. If a node has only one block, its
  // chunk 0 is that node's block.
  std::pair<size_t, size_t> chunks_of(Node node, const Ref& ref) const {
    const CollectiveKind kind = schedule_.collective.kind;
    const bool own_input = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
    const bool own_output = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter;
    const bool own = (own_input && ref.buffer == Buffer::kInput) || (own_output && ref.buffer == Buffer::kOutput);
    const auto first = static_cast<size_t>(own ? node : ref.first);
    return {first, first + static_cast<size_t>(ref.count)};
  }
  double of(Node node, const Ref& ref) const {
    const auto [first, end] = chunks_of(node, ref);
    return static_cast<double>(offsets_[end] - offsets_[first]);
  }
  double of_chunk(size_t chunk) const { return static_cast<double>(offsets_[chunk + 1] - offsets_[chunk]); }
  size_t chunks() const { return offsets_.size() - 1; }

 private:
  const Schedule& schedule_;
  const std::vector<int64_t> offsets_;
};

}  // namespace braid
