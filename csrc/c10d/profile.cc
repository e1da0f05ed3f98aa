// SPDX-License-Identifier: Apache-2.0
#include "c10d/profile.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <type_traits>
#include <vector>

namespace braid::adapter {
namespace {

using ::c10d::OpType;

// The names of an operation for readers of traces and of records. They are NCCL's names.
struct Names {
  OpType type;
  const char* in_traces;
  const char* in_records;
};
constexpr Names kNames[] = {
    {OpType::ALLREDUCE, "allreduce", "all_reduce"},
    {OpType::ALLREDUCE_COALESCED, "allreduce_coalesced", "all_reduce"},
    {OpType::_ALLREDUCE_SPARSE, "allreduce_sparse", "all_reduce"},
    {OpType::BROADCAST, "broadcast", "broadcast"},
    {OpType::REDUCE, "reduce", "reduce"},
    {OpType::ALLGATHER, "all_gather", "all_gather"},
    {OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "all_gather"},
    {OpType::_ALLGATHER_BASE, "_allgather_base", "_all_gather_base"},
    {OpType::REDUCE_SCATTER, "reduce_scatter", "reduce_scatter"},
    {OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", "_reduce_scatter_base"},
    {OpType::ALLTOALL, "all_to_all", "all_to_all"},
    {OpType::ALLTOALL_BASE, "all_to_allv", "all_to_all"},
    {OpType::GATHER, "gather", "gather"},
    {OpType::SCATTER, "scatter", "scatter"},
    {OpType::BARRIER, "barrier", "barrier"},
    {OpType::SEND, "send", "send"},
    {OpType::RECV, "recv", "recv"},
    {OpType::RECVANYSOURCE, "recvAnySource", "recv"},
};

const Names& names_of(OpType type) {
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Names& n) { return n.type == type; });
  TORCH_INTERNAL_ASSERT(found != std::end(kNames), "braid: no name for operation ", ::c10d::opTypeToString(type));
  return *found;
}

int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

// The ranks of a group as the first rank and the step between ranks. The step is 0 if it is not the same
// everywhere.
std::pair<int, int> start_and_step(const ProfiledGroup& group) {
  const std::vector<int64_t>& ranks = group.global_ranks;
  if (ranks.empty()) return {0, 1};
  const int64_t step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != step) return {static_cast<int>(ranks[0]), 0};
  }
  return {static_cast<int>(ranks[0]), static_cast<int>(step)};
}

// torch 2.11 has no argument for `asynchronous`.
template <class Info, class... Facts>
std::shared_ptr<Info> debug_info(bool asynchronous, const Facts&... facts) {
  if constexpr (std::is_constructible_v<Info, const Facts&..., bool>) {
    return std::make_shared<Info>(facts..., asynchronous);
  } else {
    return std::make_shared<Info>(facts...);
  }
}

}  // namespace

const char* name_in_records(::c10d::OpType type) { return names_of(type).in_records; }

CommsRecord::CommsRecord(const ProfiledGroup& group, const Call& call, uint64_t sequence) {
  const std::vector<at::Tensor>& outputs = call.tensors.results();
  const bool is_message = ::c10d::isP2POp(call.type);
  const auto id = std::make_tuple(static_cast<int64_t>(sequence), is_message);
  const auto name = std::make_tuple(group.uid, group.description);
  const std::vector<int64_t> no_splits;
  const auto [start, step] = start_and_step(group);
  const at::ScalarType dtype = !call.inputs.empty() ? call.inputs.front().scalar_type()
                               : !outputs.empty()   ? outputs.front().scalar_type()
                                                    : at::kByte;
  auto info = debug_info<torch::ParamCommsDebugInfo>(
      call.asynchronous, name, group.rank, names_of(call.type).in_traces, elements_of(call.inputs),
      elements_of(outputs), dtype, no_splits, no_splits, start, step, group.size);
  const auto set_sequence = [&](auto& known) {  // torch 2.11 has no such function
    if constexpr (requires { known.setSequenceInfo(int64_t{}, bool{}); }) {
      known.setSequenceInfo(static_cast<int64_t>(sequence), is_message);
    }
  };
  set_sequence(*info);
  info_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, std::move(info));
  event_.emplace(at::RecordScope::FUNCTION);
  if (!event_->isActive()) return;
  if (event_->needsInputs()) {
    inputs_ = {call.inputs,      id,        name,  group.rank, names_of(call.type).in_traces,
               no_splits,        no_splits, start, step,       group.size,
               call.asynchronous};
    event_->before(at::kParamCommsCallName, &inputs_);
  } else {
    event_->before(at::kParamCommsCallName);
  }
  if (event_->needsOutputs()) event_->setOutputs(std::vector<c10::IValue>(1, c10::IValue(outputs)));
}

}  // namespace braid::adapter
