// SPDX-License-Identifier: Apache-2.0
// Calls of calls.h on one block per rank: all_gather, reduce_scatter, gather, scatter.
#include "c10d/calls.h"

namespace braid::adapter {

using ::c10d::OpType;

Call call_all_gather(Place place, const TensorList& outputs, const at::Tensor& input,
                     const ::c10d::AllgatherOptions& options) {
  const Subject what{"all_gather", "output"};
  Call call = begin_call(OpType::ALLGATHER, "all_gather", CollectiveKind::kAllGather, options);
  check_tensor(input, {"all_gather", "input"});
  check_list(place, outputs, input, what);
  call.inputs = {input};
  call.operation.dtype = dtype_to_move(input);
  call.operation.outputs = write_list(call.tensors, outputs, what);
  call.operation.inputs = {read_beside(call, input, place.rank)};
  return call;
}

Call call_all_gather_into(Place place, const at::Tensor& output, const at::Tensor& input,
                          const ::c10d::AllgatherOptions& options) {
  const Subject what{"all_gather_into_tensor", "output"};
  Call call = begin_call(OpType::_ALLGATHER_BASE, "all_gather", CollectiveKind::kAllGather, options);
  check_tensor(input, {"all_gather_into_tensor", "input"});
  check_tensor(output, what);
  check_multiple(place, output, input, what);
  call.inputs = {input};
  call.operation.dtype = dtype_to_move(input);
  call.operation.outputs = equal_blocks(call.tensors.write(output, what), place.size);
  call.operation.inputs = {read_beside(call, input, place.rank)};
  return call;
}

Call call_reduce_scatter(Place place, const at::Tensor& output, const TensorList& inputs,
                         const ::c10d::ReduceScatterOptions& options) {
  const Subject what{"reduce_scatter", "output"};
  Call call = begin_call(OpType::REDUCE_SCATTER, "reduce_scatter", CollectiveKind::kReduceScatter, options);
  check_tensor(output, what);
  check_list(place, inputs, output, {"reduce_scatter", "input"});
  call.inputs = inputs;
  set_reduction(call, output, options.reduceOp, what);
  call.operation.outputs = {call.tensors.write(output, what)};
  for (int i = 0; i < place.size; ++i) {
    const at::Tensor& input = inputs[static_cast<size_t>(i)];
    call.operation.inputs.push_back(read_beside(call, input, i == place.rank ? 0 : -1));
  }
  return call;
}

Call call_reduce_scatter_from(Place place, const at::Tensor& output, const at::Tensor& input,
                              const ::c10d::ReduceScatterOptions& options) {
  const Subject what{"reduce_scatter_tensor", "output"};
  Call call = begin_call(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", CollectiveKind::kReduceScatter, options);
  check_tensor(output, what);
  check_tensor(input, {"reduce_scatter_tensor", "input"});
  check_multiple(place, input, output, {"reduce_scatter_tensor", "input"});
  call.inputs = {input};
  set_reduction(call, output, options.reduceOp, what);
  const Bytes target = call.tensors.write(output, what);
  call.operation.outputs = {target};
  ConstBytes source = call.tensors.read(input);
  const bool in_place = equal_blocks(source, place.size)[static_cast<size_t>(place.rank)].data() == target.data();
  if (!in_place && overlap(source, target)) source = call.tensors.read_copy(input);
  call.operation.inputs = equal_blocks(source, place.size);
  return call;
}

Call call_gather(Place place, const TensorList& outputs, const at::Tensor& input,
                 const ::c10d::GatherOptions& options) {
  const Subject what{"gather", "output"};
  Call call = begin_call(OpType::GATHER, "gather", CollectiveKind::kGather, options);
  call.operation.root = check_root(place, options.rootRank, what);
  check_tensor(input, {"gather", "input"});
  if (place.rank == call.operation.root) check_list(place, outputs, input, what);
  call.inputs = {input};
  call.operation.dtype = dtype_to_move(input);
  call.operation.outputs = write_list(call.tensors, outputs, what);
  call.operation.inputs = {read_beside(call, input, place.rank)};
  return call;
}

Call call_scatter(Place place, const at::Tensor& output, const TensorList& inputs,
                  const ::c10d::ScatterOptions& options) {
  const Subject what{"scatter", "output"};
  Call call = begin_call(OpType::SCATTER, "scatter", CollectiveKind::kScatter, options);
  call.operation.root = check_root(place, options.rootRank, what);
  check_tensor(output, what);
  if (place.rank == call.operation.root) check_list(place, inputs, output, {"scatter", "input"});
  call.inputs = inputs;
  call.operation.dtype = dtype_to_move(output);
  call.operation.outputs = {call.tensors.write(output, what)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool own = i == static_cast<size_t>(place.rank);
    call.operation.inputs.push_back(read_beside(call, inputs[i], own ? 0 : -1));
  }
  return call;
}

}  // namespace braid::adapter
