// SPDX-License-Identifier: Apache-2.0
// Calls of calls.h in which every rank sends a block to every rank: all_to_all.
#include <c10/util/Exception.h>

#include <numeric>

#include "c10d/calls.h"

namespace braid::adapter {
namespace {

using ::c10d::OpType;

// The sizes in bytes of the blocks into which the splits cut dimension 0.
std::vector<size_t> block_sizes(Place place, const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                const Subject& what) {
  TORCH_CHECK_VALUE(tensor.dim() > 0, "braid ", what, " has no dimension to split; use a tensor of one element");
  const int64_t rows = tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % place.size == 0, "braid ", what, ": its dimension 0 is ", rows,
                      ", which does not divide into ", place.size, " equal splits; give split sizes");
    return std::vector<size_t>(static_cast<size_t>(place.size), tensor.nbytes() / static_cast<size_t>(place.size));
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(place.size), "braid ", what, ": got ", splits.size(),
                    " split sizes, expected ", place.size, ", one per rank of the group");
  const size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  std::vector<size_t> sizes;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "braid ", what, ": split size ", split, " is negative");
    sizes.push_back(static_cast<size_t>(split) * row_bytes);
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == rows, "braid ", what, ": the split sizes sum to ", sum, ", but dimension 0 is ", rows);
  return sizes;
}

template <class Memory>
std::vector<Memory> cut(Memory whole, const std::vector<size_t>& sizes) {
  std::vector<Memory> blocks;
  size_t offset = 0;
  for (const size_t size : sizes) {
    blocks.push_back(whole.subspan(offset, size));
    offset += size;
  }
  return blocks;
}

}  // namespace

Call call_all_to_all(Place place, const TensorList& outputs, const TensorList& inputs,
                     const ::c10d::AllToAllOptions& options) {
  const Subject what{"all_to_all", "output"};
  Call call = begin_call(OpType::ALLTOALL, "all_to_all", CollectiveKind::kAllToAll, options);
  check_count(place, inputs.size(), {"all_to_all", "input"});
  const at::Tensor& kept = inputs[static_cast<size_t>(place.rank)];
  check_tensor(kept, {"all_to_all", "input", place.rank});
  check_list(place, inputs, kept, {"all_to_all", "input"});
  check_list(place, outputs, kept, what);
  call.inputs = inputs;
  call.operation.dtype = dtype_to_move(kept);
  call.operation.outputs = write_list(call.tensors, outputs, what);
  for (const at::Tensor& input : inputs) call.operation.inputs.push_back(read_beside(call, input, -1));
  return call;
}

Call call_all_to_all_single(Place place, const at::Tensor& output, const at::Tensor& input,
                            const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits,
                            const ::c10d::AllToAllOptions& options) {
  const Subject from{"all_to_all_single", "input"};
  const Subject to{"all_to_all_single", "output"};
  Call call = begin_call(OpType::ALLTOALL_BASE, "all_to_all", CollectiveKind::kAllToAll, options);
  check_tensor(input, from);
  check_tensor(output, to);
  check_same_dtype(output, input, to);
  const std::vector<size_t> received = block_sizes(place, output, output_splits, to);
  const std::vector<size_t> sent = block_sizes(place, input, input_splits, from);
  const auto own = static_cast<size_t>(place.rank);
  TORCH_CHECK_VALUE(received[own] == sent[own], "braid all_to_all_single: rank ", place.rank, " sends itself ",
                    sent[own], " bytes, but expects ", received[own]);
  call.inputs = {input};
  call.operation.dtype = dtype_to_move(input);
  const Bytes whole = call.tensors.write(output, to);
  call.operation.outputs = {whole};  // temporary: read_beside() compares the input with the whole output
  call.operation.inputs = cut(read_beside(call, input, -1), sent);
  call.operation.outputs = cut(whole, received);
  return call;
}

}  // namespace braid::adapter
