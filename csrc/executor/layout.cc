// SPDX-License-Identifier: Apache-2.0
#include "executor/layout.h"

#include <algorithm>

#include "schedule/segments.h"

namespace braid {

bool uses_scratch(const Program& program) {
  // Looking at targets is enough: a program writes to scratch before it reads from it.
  return std::any_of(program.begin(), program.end(), [](const Round& round) {
    return std::any_of(round.begin(), round.end(),
                       [](const Step& step) { return step.target.buffer == Buffer::kScratch; });
  });
}

Layout::Layout(const Schedule& schedule, const Operands& operands, size_t chunk_bytes, size_t whole_from)
    : schedule_(schedule),
      operands_(operands),
      vector_(is_vector(schedule.collective.kind)),
      whole_from_(whole_from) {
  if (vector_) {
    total_bytes_ = !operands.inputs.empty()    ? operands.inputs[0].size()
                   : !operands.outputs.empty() ? operands.outputs[0].size()
                                               : operands.bytes;
    if (total_bytes_ == 0) return;
    const size_t element = size_of(operands.dtype);
    const size_t aimed =
        is_whole(total_bytes_) ? total_bytes_ : chunk_bytes * static_cast<size_t>(schedule.chunks);
    const Segments cut = cut_vector(total_bytes_, aimed);
    grain_bytes_ = cut.grain_bytes;
    segments_ = cut.count;
    scratch_bytes_ = grain_bytes_;
    if (schedule.chunks == 1) return;
    const size_t last_bytes = total_bytes_ - grain_bytes_ * static_cast<size_t>(segments_ - 1);
    if (segments_ > 1) full_offsets_ = chunk_offsets(schedule, static_cast<int64_t>(grain_bytes_ / element));
    last_offsets_ = chunk_offsets(schedule, static_cast<int64_t>(last_bytes / element));
  } else {
    size_t longest = 0;  // longest block that is cut
    const auto see = [&](ConstBytes block) {
      if (is_whole(block.size())) {
        segments_ = 1;
        any_whole_ = true;
      } else {
        longest = std::max(longest, block.size());
      }
    };
    for (const ConstBytes& block : operands.inputs) see(block);
    for (const Bytes& block : operands.outputs) see(block);
    if (longest > 0) {
      const Segments cut = cut_blocks(longest, chunk_bytes);
      grain_bytes_ = cut.grain_bytes;
      segments_ = cut.count;
    }
    scratch_bytes_ = grain_bytes_ * static_cast<size_t>(schedule.chunks);
  }
}

size_t Layout::covered(int64_t count) const {
  if (count == 0) return 0;
  const bool all = any_whole_ || count >= segments_;
  return all ? Feed::kAll : grain_bytes_ * static_cast<size_t>(count);
}

size_t Layout::block_bytes(const Ref& ref) const {
  if (vector_) return total_bytes_;
  const auto k = static_cast<size_t>(ref.first);
  switch (ref.buffer) {
    case Buffer::kInput: return operands_.inputs[k].size();
    case Buffer::kOutput: return operands_.outputs[k].size();
    case Buffer::kScratch: break;
  }
  // Scratch mirrors the larger side: the one with a block per rank.
  if (operands_.inputs.size() > operands_.outputs.size()) return operands_.inputs[k].size();
  return operands_.outputs[k].size();
}

Layout::Range Layout::range(const Ref& ref, int64_t segment) const {
  const size_t begin = grain_bytes_ * static_cast<size_t>(segment);
  if (vector_ && schedule_.chunks == 1) return {begin, std::min(begin + grain_bytes_, total_bytes_)};
  if (vector_) {
    const size_t element = size_of(operands_.dtype);
    const auto& offsets = segment + 1 == segments_ ? last_offsets_ : full_offsets_;
    return {begin + static_cast<size_t>(offsets[static_cast<size_t>(ref.first)]) * element,
            begin + static_cast<size_t>(offsets[static_cast<size_t>(ref.first + ref.count)]) * element};
  }
  const size_t size = block_bytes(ref);
  if (is_whole(size)) return segment == 0 ? Range{0, size} : Range{size, size};
  return {std::min(begin, size), std::min(begin + grain_bytes_, size)};
}

size_t Layout::scratch_offset(const Ref& ref, const Range& r, int64_t segment) const {
  if (vector_) return r.begin - grain_bytes_ * static_cast<size_t>(segment);
  return grain_bytes_ * static_cast<size_t>(ref.first);
}

size_t Layout::place(const Ref& ref, int64_t segment) const {
  size_t before = range(ref, segment).begin;
  for (Ref earlier{ref.buffer, 0, 1}; !vector_ && earlier.first < ref.first; ++earlier.first) {
    before += block_bytes(earlier);
  }
  return before;
}

ConstBytes Layout::read(const Ref& ref, int64_t segment, std::byte* scratch) const {
  if (ref.buffer != Buffer::kInput) return write(ref, segment, scratch);
  const Range r = range(ref, segment);
  const ConstBytes block = operands_.inputs[vector_ ? 0 : static_cast<size_t>(ref.first)];
  return block.subspan(r.begin, r.end - r.begin);
}

Bytes Layout::write(const Ref& ref, int64_t segment, std::byte* scratch) const {
  const Range r = range(ref, segment);
  if (ref.buffer == Buffer::kScratch) return {scratch + scratch_offset(ref, r, segment), r.end - r.begin};
  const Bytes block = operands_.outputs[vector_ ? 0 : static_cast<size_t>(ref.first)];
  return block.subspan(r.begin, r.end - r.begin);
}

}  // namespace braid
