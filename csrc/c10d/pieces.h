// SPDX-License-Identifier: Apache-2.0
// How the copies of one operation's tensors are cut, so that copies and network overlap. A piece is the same range of
// every block: of the whole tensor in an all_reduce, of each rank's part in an all_gather.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "base/span.h"
#include "communicator/communicator.h"

namespace braid::adapter {

// The place of one of an operation's blocks in the memory of a tensor.
struct Block {
  size_t offset = 0;
  size_t bytes = 0;
};

// The blocks of the operation that lie in this memory.
std::vector<Block> blocks_in(ConstBytes memory, const Operation& operation);

// The bytes of a block in one piece, if a piece has about `piece_bytes` of all blocks together. A multiple of 64, so
// whole elements. All of the longest block if the operation cannot be fed.
size_t step_of(const Operation& operation, size_t piece_bytes);
size_t longest_block(const Operation& operation);

// Copies bytes [begin, end) of each block, without waiting. The tensors have the same shape, in one piece each. Without
// blocks it copies all, if `begin` is 0.
void copy_range(const at::Tensor& to, const at::Tensor& from, const std::vector<Block>& blocks, size_t begin,
                size_t end);

// The same range of a CPU tensor, times the factor.
void scale_range(const at::Tensor& tensor, const at::Tensor& factor, const std::vector<Block>& blocks,
                 size_t begin, size_t end);

}  // namespace braid::adapter
