// SPDX-License-Identifier: Apache-2.0
// The collectives of Backend. Each turns its arguments into a call and starts it.
#include <c10/util/Exception.h>

#include "c10d/backend.h"

namespace braid::adapter {
namespace {

void check_pairs(size_t outputs, size_t inputs, const char* operation) {
  TORCH_CHECK_VALUE(outputs == inputs, "braid ", operation, ": got ", outputs, " outputs for ", inputs, " inputs");
}

}  // namespace

Backend::Work Backend::allreduce(TensorList& tensors, const ::c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, {"all_reduce"});
  if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, options);
  LocalLeg* const by = leg();
  if (by && by->takes_all_reduce(tensor, options.reduceOp))
    return by->all_reduce(tensor, options, title_of("all_reduce"));
  return start(call_all_reduce(tensor, options));
}

Backend::Work Backend::lossy_allreduce(const at::Tensor& tensor, const std::string& codec,
                                       const std::optional<at::Tensor>& residual, uint32_t seed,
                                       const ::c10d::AllreduceOptions& options) {
  const LegCodec by_codec{codec, residual, seed};
  LocalLeg* const by = leg();
  if (by && by->takes_all_reduce(tensor, options.reduceOp) && by->takes_lossy(tensor, by_codec, options.reduceOp))
    return by->lossy_all_reduce(tensor, by_codec, options, title_of("all_reduce"));
  return start(call_lossy_all_reduce(tensor, codec, residual, seed, options));
}

Backend::Work Backend::lossy_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            const std::string& codec, const std::optional<at::Tensor>& residual,
                                            uint32_t seed, const ::c10d::ReduceScatterOptions& options) {
  const LegCodec by_codec{codec, residual, seed};
  LocalLeg* const by = leg();
  if (by && by->takes_reduce_scatter(output, input, options.reduceOp) &&
      by->takes_lossy(input, by_codec, options.reduceOp)) {
    return by->lossy_reduce_scatter(output, input, by_codec, options, title_of("reduce_scatter"));
  }
  return start(call_lossy_reduce_scatter(place(), output, input, codec, residual, seed, options));
}

Backend::Work Backend::allreduce_coalesced(TensorList& tensors, const ::c10d::AllreduceCoalescedOptions& options) {
  std::vector<Call> calls;
  for (const at::Tensor& tensor : tensors) calls.push_back(call_all_reduce(tensor, options));
  return start_all(::c10d::OpType::ALLREDUCE_COALESCED, std::move(calls));
}

Backend::Work Backend::broadcast(TensorList& tensors, const ::c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, {"broadcast"});
  const bool has_root = options.rootRank >= 0 && options.rootRank < size_;
  LocalLeg* const by = has_root ? leg() : nullptr;
  if (by && by->takes_broadcast(tensor)) return by->broadcast(tensor, options, title_of("broadcast"));
  return start(call_broadcast(place(), tensor, options));
}

Backend::Work Backend::reduce(TensorList& tensors, const ::c10d::ReduceOptions& options) {
  return start(call_reduce(place(), only(tensors, {"reduce"}), options));
}

Backend::Work Backend::allgather(Lists& outputs, TensorList& inputs, const ::c10d::AllgatherOptions& options) {
  const TensorList& blocks = only(outputs, {"all_gather", "output"});
  return start(call_all_gather(place(), blocks, only(inputs, {"all_gather", "input"}), options));
}

Backend::Work Backend::allgather_coalesced(Lists& outputs, TensorList& inputs,
                                           const ::c10d::AllgatherOptions& options) {
  check_count(place(), outputs.size(), {"all_gather_coalesced", "list of output"});
  for (const TensorList& of_rank : outputs) check_pairs(of_rank.size(), inputs.size(), "all_gather_coalesced");
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorList blocks;
    for (const TensorList& of_rank : outputs) blocks.push_back(of_rank[i]);
    calls.push_back(call_all_gather(place(), blocks, inputs[i], options));
  }
  return start_all(::c10d::OpType::ALLGATHER_COALESCED, std::move(calls));
}

Backend::Work Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const ::c10d::AllgatherOptions& options) {
  LocalLeg* const by = leg();
  if (by && by->takes_all_gather(output, input))
    return by->all_gather(output, input, options, title_of("all_gather"));
  return start(call_all_gather_into(place(), output, input, options));
}

Backend::Work Backend::allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                       const ::c10d::AllgatherOptions& options) {
  check_pairs(outputs.size(), inputs.size(), "all_gather_into_tensor_coalesced");
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(call_all_gather_into(place(), outputs[i], inputs[i], options));
  }
  return start_all(::c10d::OpType::COALESCED, std::move(calls));
}

Backend::Work Backend::reduce_scatter(TensorList& outputs, Lists& inputs,
                                      const ::c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, {"reduce_scatter", "output"});
  return start(call_reduce_scatter(place(), output, only(inputs, {"reduce_scatter", "input"}), options));
}

Backend::Work Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const ::c10d::ReduceScatterOptions& options) {
  LocalLeg* const by = leg();
  if (by && by->takes_reduce_scatter(output, input, options.reduceOp)) {
    return by->reduce_scatter(output, input, options, title_of("reduce_scatter"));
  }
  return start(call_reduce_scatter_from(place(), output, input, options));
}

Backend::Work Backend::reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                       const ::c10d::ReduceScatterOptions& options) {
  check_pairs(outputs.size(), inputs.size(), "reduce_scatter_tensor_coalesced");
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(call_reduce_scatter_from(place(), outputs[i], inputs[i], options));
  }
  return start_all(::c10d::OpType::COALESCED, std::move(calls));
}

Backend::Work Backend::alltoall(TensorList& outputs, TensorList& inputs, const ::c10d::AllToAllOptions& options) {
  return start(call_all_to_all(place(), outputs, inputs, options));
}

Backend::Work Backend::alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                                     Splits& input_splits, const ::c10d::AllToAllOptions& options) {
  return start(call_all_to_all_single(place(), output, input, output_splits, input_splits, options));
}

Backend::Work Backend::gather(Lists& outputs, TensorList& inputs, const ::c10d::GatherOptions& options) {
  const TensorList& blocks = list_of_root(place(), options.rootRank, outputs, {"gather", "output"});
  return start(call_gather(place(), blocks, only(inputs, {"gather", "input"}), options));
}

Backend::Work Backend::scatter(TensorList& outputs, Lists& inputs, const ::c10d::ScatterOptions& options) {
  const TensorList& blocks = list_of_root(place(), options.rootRank, inputs, {"scatter", "input"});
  return start(call_scatter(place(), only(outputs, {"scatter", "output"}), blocks, options));
}

}  // namespace braid::adapter
