// SPDX-License-Identifier: Apache-2.0
// Calls of calls.h on one vector: all_reduce, broadcast, reduce, and the barrier.
#include <c10/util/Exception.h>

#include "c10d/calls.h"
#include "c10d/device.h"

namespace braid::adapter {
namespace {

using ::c10d::OpType;

void check_root_tensor(int64_t root_tensor, const Subject& what) {
  TORCH_CHECK_VALUE(root_tensor == 0, "braid ", what.operation, ": root tensor ", root_tensor,
                    " does not exist; there is exactly one");
}

void set_in_place(Call& call, const at::Tensor& tensor, const Subject& what) {
  const Bytes bytes = call.tensors.update(tensor, what);
  call.operation.inputs = {bytes};
  call.operation.outputs = {bytes};
}

}  // namespace

Call call_all_reduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options) {
  const Subject what{"all_reduce"};
  Call call = begin_call(OpType::ALLREDUCE, "all_reduce", CollectiveKind::kAllReduce, options);
  check_tensor(tensor, what);
  call.inputs = {tensor};
  set_reduction(call, tensor, options.reduceOp, what);
  set_in_place(call, tensor, what);
  return call;
}

Call call_broadcast(Place place, const at::Tensor& tensor, const ::c10d::BroadcastOptions& options) {
  const Subject what{"broadcast"};
  Call call = begin_call(OpType::BROADCAST, "broadcast", CollectiveKind::kBroadcast, options);
  call.operation.root = check_root(place, options.rootRank, what);
  check_root_tensor(options.rootTensor, what);
  check_tensor(tensor, what);
  call.operation.dtype = dtype_to_move(tensor);
  call.inputs = {tensor};
  if (place.rank == call.operation.root) {
    set_in_place(call, tensor, what);
  } else {
    call.operation.outputs = {call.tensors.write(tensor, what)};
  }
  return call;
}

Call call_reduce(Place place, const at::Tensor& tensor, const ::c10d::ReduceOptions& options) {
  const Subject what{"reduce"};
  Call call = begin_call(OpType::REDUCE, "reduce", CollectiveKind::kReduce, options);
  call.operation.root = check_root(place, options.rootRank, what);
  check_root_tensor(options.rootTensor, what);
  check_tensor(tensor, what);
  call.inputs = {tensor};
  set_reduction(call, tensor, options.reduceOp, what);
  if (place.rank == call.operation.root) {
    set_in_place(call, tensor, what);
  } else {  // the tensor stays as it is
    call.operation.inputs = {call.tensors.read(tensor)};
  }
  return call;
}

Call call_barrier(const ::c10d::BarrierOptions& options) {
  Call call = begin_call(OpType::BARRIER, "barrier", CollectiveKind::kBarrier, options);
  call.operation.inputs = {ConstBytes()};
  call.operation.outputs = {Bytes()};
  // As with NCCL, all ranks' streams have come here when it ends.
  if (options.device && !options.device->is_cpu() && why_no_path(*options.device).empty()) {
    call.tensors.follow(*options.device);
  }
  return call;
}

}  // namespace braid::adapter
