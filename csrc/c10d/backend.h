// SPDX-License-Identifier: Apache-2.0
// torch.distributed's view of a group of ranks: c10d::Backend over a Communicator, for CPU tensors.
//
// Thread safety: that of Communicator. Functions may be called with or without the GIL; none holds it while it
// waits.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "c10d/calls.h"
#include "c10d/errors.h"
#include "communicator/communicator.h"

namespace braid::adapter {

class Backend final : public ::c10d::Backend {
 public:
  // Meets the other ranks through the store, with options from the environment; waits for them for `timeout` at
  // most, which then is the timeout of operations too. `global_ranks` may be empty.
  static c10::intrusive_ptr<Backend> create(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                            milliseconds timeout, const std::string& group_id,
                                            std::vector<int64_t> global_ranks);
  Backend(std::shared_ptr<Communicator> group, Members members, milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override { return "braid"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void abort(const std::string& reason);
  void shutdown() override;
  ::c10d::ErrorType getError() override;
  void setSequenceNumberForGroup() override {}  // every group counts from the same start
  uint64_t getSequenceNumberForGroup() override;

  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Lists = std::vector<TensorList>;
  using Splits = std::vector<int64_t>;

  Work allreduce(TensorList& tensors, const ::c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(TensorList& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  Work broadcast(TensorList& tensors, const ::c10d::BroadcastOptions& options) override;
  Work reduce(TensorList& tensors, const ::c10d::ReduceOptions& options) override;
  Work allgather(Lists& outputs, TensorList& inputs, const ::c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(Lists& outputs, TensorList& inputs, const ::c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                       const ::c10d::AllgatherOptions& options) override;
  Work reduce_scatter(TensorList& outputs, Lists& inputs, const ::c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const ::c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                       const ::c10d::ReduceScatterOptions& options) override;
  Work alltoall(TensorList& outputs, TensorList& inputs, const ::c10d::AllToAllOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits,
                     const ::c10d::AllToAllOptions& options) override;
  Work gather(Lists& outputs, TensorList& inputs, const ::c10d::GatherOptions& options) override;
  Work scatter(TensorList& outputs, Lists& inputs, const ::c10d::ScatterOptions& options) override;
  Work barrier(const ::c10d::BarrierOptions& options) override;
  Work send(TensorList& tensors, int to, int tag) override;
  Work recv(TensorList& tensors, int from, int tag) override;
  Work recvAnysource(TensorList& tensors, int tag) override;

  // The group under this backend, for what torch has no name for. Throws in a forked child, where it is unusable.
  Communicator& group() const;

 private:
  Place place() const { return {members_->rank, size_}; }
  Work start(Call call);
  // All calls are checked before the first is started.
  Work start_all(::c10d::OpType type, std::vector<Call> calls);

  const int made_under_;  // fork_count()
  std::shared_ptr<Communicator> group_;
  const std::shared_ptr<const Members> members_;
  const c10::intrusive_ptr<Options> options_;
};

}  // namespace braid::adapter
