// SPDX-License-Identifier: Apache-2.0
// A group of ranks as torch.distributed sees it: c10d::Backend over a Communicator, for CPU tensors,
// and for tensors of accelerators, which are copied to the host and back.
//
// Thread safety: as Communicator. Functions may be called with or without the GIL. None holds the GIL while it
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
#include "c10d/courier.h"
#include "c10d/errors.h"
#include "c10d/hooks.h"
#include "c10d/local_leg.h"
#include "c10d/options.h"
#include "c10d/profile.h"
#include "c10d/recorder.h"
#include "c10d/work.h"
#include "communicator/communicator.h"

namespace braid::adapter {

// The arguments of a new backend: its rank in the group, and the stores.
struct BackendConfig {
  c10::intrusive_ptr<::c10d::Store> store;
  int rank = 0;
  int size = 1;
  milliseconds timeout = kBackendDefaultTimeout;  // for the rendezvous, and then for operations
  std::string group_id;
  std::vector<int64_t> global_ranks;          // by group rank; empty if the group is the whole job
  std::string known_as = "braid";             // the backend's name in profiles
  c10::intrusive_ptr<::c10d::Store> servers;  // store in which aggregators register; null: none may join
  std::optional<StatedLinks> stated;          // from the file that BRAID_LINKS names
  std::string also_equal;                     // see braid::Options::also_equal
  CopySettings copies;                        // from the environment
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

  // These make a new group; this one goes on, unless shrink() is told to abort it. Every member of the new group
  // must call. `ranks` must be the same on all: ranks of this group, in their new order. split() returns null on a
  // rank that is not listed.
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

  // Operations that one thread starts between these two calls are collected. endCoalescing() returns one Work for
  // all.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<::c10d::Work> endCoalescing() override;

  void registerOnCompletionHook(CompletionHook::Hook&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // always on

  // Allocates tensors in memory that suits braid. Today this is torch's own CPU memory.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Lists = std::vector<TensorList>;
  using Splits = std::vector<int64_t>;

  Work allreduce(TensorList& tensors, const ::c10d::AllreduceOptions& options) override;
  // Takes COO tensors, with SUM or AVG. Ranks may have different numbers of elements. Waits for the numbers of the
  // other ranks before it returns.
  Work allreduce_sparse(TensorList& tensors, const ::c10d::AllreduceOptions& options) override;
  // As allreduce, but with encoded messages between hosts; see Operation::lossy.
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
  // Throws on every rank if a rank has not come in time. Rank 0 names the first missing rank, or all of them.
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  Work send(TensorList& tensors, int to, int tag) override;
  Work recv(TensorList& tensors, int from, int tag) override;
  Work recvAnysource(TensorList& tensors, int tag) override;

  // From now on the collectives that the leg takes go by it. Call it on all ranks, before the first collective.
  void use_local_leg(LegConfig config);
  // What leg_choice() says of a group without a leg.
  void say_why_no_leg(std::string why);
  // The function is called once, with the index of the device, before the first operation on an accelerator's tensors.
  void at_first_device_call(std::function<void(int)> call);
  // Called with each group that is split off, merged or shrunk from one of this process, before it is given out.
  using OnDerived = std::function<void(const c10::intrusive_ptr<Backend>&, const BackendConfig&)>;
  static void on_derived(OnDerived call);
  // Whether an operation goes by the local leg, and why; names as in explain().
  LegChoice leg_choice(const std::string& operation, int64_t bytes, const std::string& dtype,
                       const std::string& op, c10::DeviceType device) const;

  // The group of this backend, for functions that torch has no name for. Throws in a forked child, where the group
  // cannot be used.
  Communicator& group() const;

 private:
  Place place() const { return {rank_, size_}; }
  // Starts one call as an operation of its own: all functions above that start one operation end here.
  Work start(Call call);
  // Starts calls that are all checked. Small calls are packed into one. REQUIRES: the same as packed().
  Work start_all(::c10d::OpType type, std::vector<Call> calls);
  Work receive(TensorList& tensors, int from, int tag, ::c10d::OpType type, const char* name);
  // Starts a call and returns its Work. `title`: its name in profiles; null for a part of a larger call.
  c10::intrusive_ptr<adapter::Work> begin(Call& call, const char* title, std::function<void()> at_end = nullptr);
  // True if the courier must start the call: its tensors are on an accelerator, or calls before it wait for one.
  bool is_for_courier(const Call& call) const;
  Result<std::shared_ptr<braid::Work>> give_to_courier(Call& call, std::shared_ptr<Staging> staging,
                                                       uint64_t sequence, std::optional<uint64_t> record);
  void note_device_call(c10::Device device);
  void stage(Call& call, Staging& staging);
  uint64_t next_sequence(bool is_message, bool by_courier);
  static void record_end(uint64_t record, adapter::Work& work, const std::shared_ptr<braid::Work>& started,
                         bool by_courier);
  static void tell_at_end(const std::shared_ptr<CompletionHook>& hook, adapter::Work& work, ::c10d::OpType type,
                          const std::shared_ptr<braid::Work>& started);
  void follow(const c10::intrusive_ptr<adapter::Work>& work, std::shared_ptr<braid::Work> started,
              const Call& call, bool on_host);
  // Waits until the courier has started all calls.
  void wait_for_courier();
  // Enters the call into the flight recorder. Returns the number of its record; nothing if no records are kept.
  std::optional<uint64_t> note(Recorder& recorder, const Call& call, uint64_t sequence) const;
  std::string title_of(const char* call) const;  // empty if no profile is recorded
  // Null if there is none, or if this thread collects operations.
  LocalLeg* leg();
  std::shared_ptr<CompletionHook> completion_hook();
  // The config of a group that is derived from this one.
  BackendConfig derived(const c10::intrusive_ptr<::c10d::Store>& store, const c10::intrusive_ptr<Options>& options,
                        const std::string& suffix) const;
  c10::intrusive_ptr<::c10d::Backend> derive_once(BackendConfig config);

  const int made_under_;  // fork_count()
  std::shared_ptr<Communicator> group_;
  const BackendConfig config_;
  const std::shared_ptr<const Members> members_;
  std::shared_ptr<Courier> courier_;
  std::shared_ptr<LocalLeg> leg_;  // null unless the group has one
  std::atomic<bool> awaits_device_call_{false};
  std::atomic<milliseconds> timeout_;
  std::atomic<int> shrinks_{0};
  std::atomic<uint64_t> messages_{0};

  mutable std::mutex mutex_;
  std::string why_no_leg_ = "BRAID_LOCAL_LEG asks for none";
  std::function<void(int)> at_first_device_call_;
  std::shared_ptr<CompletionHook> hook_;
  c10::intrusive_ptr<::c10d::Store> derived_from_;  // the store of the last derived group
  c10::weak_intrusive_ptr<::c10d::Backend> derived_{c10::intrusive_ptr<::c10d::Backend>()};
  std::map<std::thread::id, c10::intrusive_ptr<CoalescedWork>> coalescing_;
  std::atomic<size_t> coalescing_threads_{0};  // lets other threads skip the lock
};

}  // namespace braid::adapter
