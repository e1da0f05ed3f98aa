// SPDX-License-Identifier: Apache-2.0
// torch.distributed's view of a group of ranks: c10d::Backend over a Communicator, for CPU tensors.
//
// Thread safety: that of Communicator. Functions may be called with or without the GIL; none holds it while it
// waits.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "c10d/calls.h"
#include "c10d/coalesced.h"
#include "c10d/errors.h"
#include "c10d/hooks.h"
#include "c10d/options.h"
#include "c10d/profile.h"
#include "c10d/recorder.h"
#include "c10d/work.h"
#include "communicator/communicator.h"

namespace braid::adapter {

// What a backend is made of: its place in the group, and the stores.
struct BackendConfig {
  c10::intrusive_ptr<::c10d::Store> store;
  int rank = 0;
  int size = 1;
  milliseconds timeout = kBackendDefaultTimeout;  // for the rendezvous, and then for operations
  std::string group_id;
  std::vector<int64_t> global_ranks;          // by group rank; empty when the group is the whole job
  std::string known_as = "braid";             // its name in profiles
  c10::intrusive_ptr<::c10d::Store> servers;  // where aggregators register; null: none may join
  std::optional<StatedLinks> stated;          // by the file that BRAID_LINKS names
};

class Backend final : public ::c10d::Backend {
 public:
  // Forms the group through the store. Options come from the environment and from the config.
  static c10::intrusive_ptr<Backend> create(BackendConfig config);
  Backend(std::shared_ptr<Communicator> group, BackendConfig config);
  ~Backend() override;

  const std::string getBackendName() const override { return "braid"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;  // a copy
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void abort(const std::string& reason);
  void shutdown() override;
  ::c10d::ErrorType getError() override;
  void setSequenceNumberForGroup() override {}  // every group counts from the same start
  uint64_t getSequenceNumberForGroup() override;

  // New groups out of this one, which goes on. Every member of the new group calls, with the same ranks (of this
  // group, in the order they shall have); split() gives null to who is not listed.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<::c10d::Backend> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                            const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<::c10d::Backend> merge(const c10::intrusive_ptr<::c10d::Store>& store,
                                            const c10::intrusive_ptr<Options>& options, const int& rank,
                                            const int& size) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<::c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                             const c10::intrusive_ptr<Options>& options) override;

  // Between the two, in one thread, operations are collected; the second returns one Work for all.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<::c10d::Work> endCoalescing() override;

  void registerOnCompletionHook(CompletionHook::Hook&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // always on

  // Tensors in memory that suits braid: today, torch's own CPU memory.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Lists = std::vector<TensorList>;
  using Splits = std::vector<int64_t>;

  Work allreduce(TensorList& tensors, const ::c10d::AllreduceOptions& options) override;
  // COO tensors, which may have different numbers of elements; SUM and AVG. Waits for the others' numbers before
  // it returns.
  Work allreduce_sparse(TensorList& tensors, const ::c10d::AllreduceOptions& options) override;
  // The same between hosts in fewer bytes; communicator.h says how.
  Work lossy_allreduce(const at::Tensor& tensor, const std::string& codec,
                       const std::optional<at::Tensor>& residual, uint32_t seed,
                       const ::c10d::AllreduceOptions& options);
  Work lossy_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const std::string& codec,
                            const std::optional<at::Tensor>& residual, uint32_t seed,
                            const ::c10d::ReduceScatterOptions& options);
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
  // Throws on every rank when one has not come in time; rank 0 names the first, or all of them.
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  Work send(TensorList& tensors, int to, int tag) override;
  Work recv(TensorList& tensors, int from, int tag) override;
  Work recvAnysource(TensorList& tensors, int tag) override;

  // The group under this backend, for what torch has no name for. Throws in a forked child, where it is unusable.
  Communicator& group() const;

 private:
  Place place() const { return {rank_, size_}; }
  Work start(Call call);
  Result<std::shared_ptr<braid::Work>> start_operation(Call& call);
  // All calls are checked before the first is started; small ones travel as one. REQUIRES: what packed() does.
  Work start_all(::c10d::OpType type, std::vector<Call> calls);
  Work receive(TensorList& tensors, int from, int tag, ::c10d::OpType type, const char* name);
  // The Work of a call that `starter` gives to the group; a null title for a part of something larger.
  using Starter = std::function<Result<std::shared_ptr<braid::Work>>()>;
  c10::intrusive_ptr<adapter::Work> begin(Call& call, const char* title, const Starter& starter,
                                          std::function<void()> at_end = nullptr);
  std::optional<uint64_t> note(Recorder& recorder, const Call& call, uint64_t sequence) const;
  std::string title_of(const Call& call) const;  // empty when nobody records profiles
  std::shared_ptr<CompletionHook> completion_hook();
  // A changed copy of this backend's config, for a group that is derived from it.
  BackendConfig derived(const c10::intrusive_ptr<::c10d::Store>& store, const c10::intrusive_ptr<Options>& options,
                        const std::string& suffix) const;
  c10::intrusive_ptr<::c10d::Backend> derive_once(BackendConfig config);

  const int made_under_;  // fork_count()
  std::shared_ptr<Communicator> group_;
  const BackendConfig config_;
  const std::shared_ptr<const Members> members_;
  std::atomic<milliseconds> timeout_;
  std::atomic<int> shrinks_{0};
  std::atomic<uint64_t> messages_{0};

  std::mutex mutex_;
  std::shared_ptr<CompletionHook> hook_;
  c10::intrusive_ptr<::c10d::Store> derived_from_;  // of the last derived group
  c10::weak_intrusive_ptr<::c10d::Backend> derived_{c10::intrusive_ptr<::c10d::Backend>()};
  std::map<std::thread::id, c10::intrusive_ptr<CoalescedWork>> coalescing_;
  std::atomic<size_t> coalescing_threads_{0};  // so that others need no lock
};

}  // namespace braid::adapter
