// SPDX-License-Identifier: Apache-2.0
// Where a schedule's chunks lie in a caller's memory. A large operation is cut into segments, each a complete run
// of the schedule, so that several can be in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "codec/lossy.h"
#include "schedule/schedule.h"

namespace braid {

// One rank's memory for one operation, in blocks as communicator.h describes: one block each way for vector
// collectives, one per rank (where the node has them) for block collectives.
struct Operands {
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  size_t bytes = 0;  // of the vector, on an aggregator, which has neither
  std::optional<Lossy> lossy = std::nullopt;
};

// Whether a node's program needs scratch memory.
bool uses_scratch(const Program& program);

class Layout {
 public:
  // `chunk_bytes` is the size aimed at for one chunk of one segment; a multiple of 64. A vector or block of
  // `whole_from` bytes to 4 GiB is not cut, and belongs to the first segment: REQUIRES no scratch refs, whose
  // memory is one chunk each. The operands and the schedule must outlive the layout.
  Layout(const Schedule& schedule, const Operands& operands, size_t chunk_bytes, size_t whole_from = kNever);

  static constexpr size_t kNever = ~size_t{0};

  // Runs of the schedule that this rank takes part in; 0 for an operation without bytes. In block collectives with
  // unequal blocks ranks may count differently: a run moves nothing of a block that has ended.
  int64_t segments() const { return segments_; }
  // Whether the vector or block of `ref` is not cut.
  bool is_whole(const Ref& ref) const { return is_whole(block_bytes(ref)); }
  // Scratch memory that one segment can need.
  size_t scratch_bytes() const { return scratch_bytes_; }

  // How many bytes lie before that of `ref` in `segment`: in the vector, or in all blocks of the input, or of the
  // output, one after the other. Scratch lies as the larger of them.
  size_t place(const Ref& ref, int64_t segment) const;
  // The memory of `ref` in `segment`; scratch refs lie in `scratch`. Sizes may be 0.
  ConstBytes read(const Ref& ref, int64_t segment, std::byte* scratch) const;
  Bytes write(const Ref& ref, int64_t segment, std::byte* scratch) const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  // Byte range inside its block (vector: the vector; block collectives: block ref.first).
  Range range(const Ref& ref, int64_t segment) const;
  size_t block_bytes(const Ref& ref) const;
  bool is_whole(size_t bytes) const { return bytes >= whole_from_ && bytes <= ~uint32_t{0}; }
  size_t scratch_offset(const Ref& ref, const Range& range, int64_t segment) const;

  const Schedule& schedule_;
  const Operands& operands_;
  const bool vector_;
  const size_t whole_from_;
  size_t grain_bytes_ = 0;  // per segment: of the vector, or of each block
  size_t total_bytes_ = 0;  // vector collectives
  int64_t segments_ = 0;
  size_t scratch_bytes_ = 0;
  // Chunk offsets in elements, of a full segment and of the last one, where there are several chunks.
  std::vector<int64_t> full_offsets_;
  std::vector<int64_t> last_offsets_;
};

}  // namespace braid
