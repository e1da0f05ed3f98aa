// SPDX-License-Identifier: Apache-2.0
#include "c10d/pieces.h"

#include <algorithm>

#include "c10d/tensors.h"

namespace braid::adapter {
namespace {

constexpr size_t kGrain = 64;

// Calls visit(first element, number of elements) for each part of the range.
template <class Visit>
void for_each_part(const at::Tensor& tensor, const std::vector<Block>& blocks, size_t begin, size_t end,
                   const Visit& visit) {
  const size_t element = tensor.element_size();
  for (const Block& block : blocks) {
    const size_t from = std::min(begin, block.bytes);
    const size_t to = std::min(end, block.bytes);
    if (from < to) {
      visit(static_cast<int64_t>((block.offset + from) / element), static_cast<int64_t>((to - from) / element));
    }
  }
}

}  // namespace

std::vector<Block> blocks_in(ConstBytes memory, const Operation& operation) {
  std::vector<Block> found;
  const auto see = [&](ConstBytes block) {
    if (block.empty() || block.data() < memory.data() || block.data() >= memory.data() + memory.size()) return;
    const auto offset = static_cast<size_t>(block.data() - memory.data());
    // An operation in place has the same block as input and output.
    const bool is_new =
        std::none_of(found.begin(), found.end(), [&](const Block& known) { return known.offset == offset; });
    if (is_new) found.push_back({offset, block.size()});
  };
  for (const ConstBytes& block : operation.inputs) see(block);
  for (const Bytes& block : operation.outputs) see(block);
  return found;
}

size_t longest_block(const Operation& operation) {
  size_t longest = 0;
  for (const ConstBytes& block : operation.inputs) longest = std::max(longest, block.size());
  for (const Bytes& block : operation.outputs) longest = std::max(longest, block.size());
  return longest;
}

size_t step_of(const Operation& operation, size_t piece_bytes) {
  const size_t longest = longest_block(operation);
  if (operation.lossy) return longest;
  const size_t blocks = std::max({operation.inputs.size(), operation.outputs.size(), size_t{1}});
  return std::max(piece_bytes / blocks / kGrain * kGrain, kGrain);
}

void copy_range(const at::Tensor& to, const at::Tensor& from, const std::vector<Block>& blocks, size_t begin,
                size_t end) {
  if (blocks.empty()) {
    if (begin == 0) to.copy_(from, /*non_blocking=*/true);
    return;
  }
  const at::Tensor flat_to = to.view(-1);
  const at::Tensor flat_from = from.view(-1);
  for_each_part(to, blocks, begin, end, [&](int64_t first, int64_t count) {
    flat_to.narrow(0, first, count).copy_(flat_from.narrow(0, first, count), /*non_blocking=*/true);
  });
}

void scale_range(const at::Tensor& tensor, const at::Tensor& factor, const std::vector<Block>& blocks,
                 size_t begin, size_t end) {
  const at::Tensor flat = tensor.view(-1);
  for_each_part(tensor, blocks, begin, end,
                [&](int64_t first, int64_t count) { scale_by(flat.narrow(0, first, count), factor); });
}

}  // namespace braid::adapter
