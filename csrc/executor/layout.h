// SPDX-License-Identifier: Apache-2.0
// Where a schedule's chunks lie in a caller's memory. A large operation is cut into segments, so that several can
// be in flight. Each segment is a complete run of the schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/feed.h"
#include "base/span.h"
#include "codec/lossy.h"
#include "schedule/schedule.h"

namespace braid {

// One rank's memory for one operation, in blocks as communicator.h describes. Vector collectives have one input
// and one output block. Block collectives have one block per rank, where the node has them.
struct Operands {
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  size_t bytes = 0;  // size of the vector on an aggregator, which has no blocks
  std::optional<Lossy> lossy = std::nullopt;
  Feed* feed = nullptr;  // null: all inputs are there
};

// True if a node's program needs scratch memory.
bool uses_scratch(const Program& program);

class Layout {
 public:
  // `chunk_bytes`: the target size of one chunk of one segment; a multiple of 64. A vector or block of at least
  // `whole_from` bytes and less than 4 GiB is not cut; it belongs to the first segment. REQUIRES for such a block:
  // no scratch refs, because scratch memory holds one chunk for each. The operands and the schedule must outlive
  // the layout.
  Layout(const Schedule& schedule, const Operands& operands, size_t chunk_bytes, size_t whole_from = kNever);

  static constexpr size_t kNever = ~size_t{0};

  // How many runs of the schedule this rank takes part in; 0 for an operation without bytes. Ranks may have
  // different counts if blocks are unequal. A run moves no bytes of a block that has ended.
  int64_t segments() const { return segments_; }
  // True if the vector or block of `ref` is not cut.
  bool is_whole(const Ref& ref) const { return is_whole(block_bytes(ref)); }
  // The bytes of each block that the first `count` segments cover; Feed::kAll if they cover all.
  size_t covered(int64_t count) const;
  // True if the inputs of a segment have arrived.
  bool has_input(int64_t segment) const {
    return operands_.feed == nullptr || operands_.feed->arrived() >= covered(segment + 1);
  }
  // The scratch memory that one segment needs at most.
  size_t scratch_bytes() const { return scratch_bytes_; }

  // The offset of `ref` in `segment`, in bytes. Vector collectives: in the vector. Block collectives: in all
  // blocks of the input, or of the output, one after the other. Scratch is laid out like the larger one.
  size_t place(const Ref& ref, int64_t segment) const;
  // The memory of `ref` in `segment`. Scratch refs lie in `scratch`. The size may be 0.
  ConstBytes read(const Ref& ref, int64_t segment, std::byte* scratch) const;
  Bytes write(const Ref& ref, int64_t segment, std::byte* scratch) const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  // Byte range inside the vector, or inside block ref.first of a block collective.
  Range range(const Ref& ref, int64_t segment) const;
  size_t block_bytes(const Ref& ref) const;
  bool is_whole(size_t bytes) const { return bytes >= whole_from_ && bytes <= ~uint32_t{0}; }
  size_t scratch_offset(const Ref& ref, const Range& range, int64_t segment) const;

  const Schedule& schedule_;
  const Operands& operands_;
  const bool vector_;
  const size_t whole_from_;
  bool any_whole_ = false;
  size_t grain_bytes_ = 0;  // bytes of the vector, or of each block, in one segment
  size_t total_bytes_ = 0;  // vector collectives
  int64_t segments_ = 0;
  size_t scratch_bytes_ = 0;
  // Chunk offsets in elements, in a full segment and in the last one. Empty if the schedule has one chunk.
  std::vector<int64_t> full_offsets_;
  std::vector<int64_t> last_offsets_;
};

}  // namespace braid
