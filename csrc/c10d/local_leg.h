// SPDX-License-Identifier: Apache-2.0
// Collectives of a group whose ranks share hosts. Another c10d backend, NCCL for instance, carries them within a host.
// braid carries them between ranks of the same place on each host.
//
//   all_reduce      per chunk: reduce_scatter within the host, all_reduce of the shard between hosts, all_gather within
//                   the host. All reduce_scatters are launched first, so the legs of different chunks overlap.
//   broadcast       per chunk: between hosts at the root's place, then within each host.
//   all_gather      of pieces of the same place between hosts, then one all_gather within the host per host.
//   reduce_scatter  the same backwards.
//
// Everything is launched by the calling thread, on a stream of the leg. NCCL wants one order of launches on all ranks,
// and the order of calls is the only one that all ranks share. A call therefore returns when the leg between hosts is
// enqueued, which may block it.
//
// An operation by the leg comes after those without it that it touches, whether the caller has waited for them or not.
//
// Thread safety: calls of several threads follow each other. No function holds the GIL while it waits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "c10d/courier.h"
#include "c10d/device.h"
#include "c10d/errors.h"
#include "c10d/flat_works.h"
#include "c10d/leg_coder.h"
#include "c10d/leg_table.h"
#include "c10d/leg_work.h"
#include "communicator/communicator.h"

namespace braid::adapter {

struct LegConfig;
bool carries(const LegConfig& config, c10::DeviceType type);

struct LegConfig {
  c10::intrusive_ptr<::c10d::Backend> local;   // The ranks of this host, in the group's order.
  c10::intrusive_ptr<::c10d::Backend> across;  // This place on all hosts, in the order of hosts; null on one host.
  std::string name;                            // Of the local backend.
  std::vector<c10::DeviceType> devices;        // Whose tensors it carries.
  std::vector<int> hosts;                      // By rank: 0, 1 and so on; each host has as many ranks.
  LegTable table;                              // For which operations it is used.
  std::shared_ptr<const LegCoder> coder;       // Of what `across` sends; null without `across`.
};

// How an operation would go, and why.
struct LegChoice {
  bool by_leg = false;
  std::string why;
};

class LocalLeg {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;

  // `flat`: the group of all ranks, which learns of failures, and fails the legs when it fails.
  // `courier`: of that group.
  LocalLeg(LegConfig config, std::shared_ptr<Communicator> flat, std::shared_ptr<Courier> courier,
           std::shared_ptr<const Members> members);
  ~LocalLeg();
  // Ends both legs in good order.
  void shutdown();
  void set_timeout(milliseconds timeout);
  // The streams wait for all that was launched.
  void block(const CopyStreams& streams);

  // Collectives on CPU tensors without the leg, if it carries others: null if not.
  std::shared_ptr<FlatWorks> flat_works() const { return flat_works_; }

  // Whether an operation goes by the leg, by its names, as explain() has them. A codec does not change the choice.
  LegChoice choice(const std::string& operation, int64_t bytes, const std::string& dtype, const std::string& op,
                   c10::DeviceType device) const;
  // The same of a call with these arguments. The answer is the same on all ranks of a correct program, and "no" for
  // wrong arguments, so that the flat way refuses them.
  bool takes_all_reduce(const at::Tensor& tensor, const ::c10d::ReduceOp& op) const;
  bool takes_broadcast(const at::Tensor& tensor) const;
  bool takes_all_gather(const at::Tensor& output, const at::Tensor& input) const;
  bool takes_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ::c10d::ReduceOp& op) const;

  // With a codec (Operation::lossy): messages between hosts are encoded, those within a host are not. A rank has lost
  // only what its shard's messages lack, so it changes only this part of its residual.
  bool takes_lossy(const at::Tensor& whole, const LegCodec& codec, const ::c10d::ReduceOp& op) const;

  // REQUIRES: the leg takes it. `title`: the name in profiles; "" if no profile is recorded.
  Work all_reduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options, const std::string& title);
  Work broadcast(const at::Tensor& tensor, const ::c10d::BroadcastOptions& options, const std::string& title);
  Work all_gather(const at::Tensor& output, const at::Tensor& input, const ::c10d::AllgatherOptions& options,
                  const std::string& title);
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      const ::c10d::ReduceScatterOptions& options, const std::string& title);
  Work lossy_all_reduce(const at::Tensor& tensor, const LegCodec& codec, const ::c10d::AllreduceOptions& options,
                        const std::string& title);
  Work lossy_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const LegCodec& codec,
                            const ::c10d::ReduceScatterOptions& options, const std::string& title);

 private:
  // Starts to reduce a shard, which begins at an element of the tensor, over the hosts.
  using BetweenHosts = std::function<Steps(const at::Tensor& shard, int64_t begin)>;
  // Reduces a column, the host's sums of a block for each host, over the hosts. This host's block of it goes to `mine`.
  using ScatterBetweenHosts = std::function<void(at::Tensor mine, at::Tensor column)>;
  struct Call {
    ::c10d::OpType type;
    const char* name;
    const std::string& title;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> residuals = {};
    std::vector<at::Tensor> changed() const;  // results and residuals
  };
  Work all_reduce(const Call& call, const ::c10d::AllreduceOptions& options, const BetweenHosts& between);
  Work reduce_scatter(const Call& call, const ::c10d::ReduceScatterOptions& options,
                      const ScatterBetweenHosts& between);
  // Launches a collective: runs `body` on the leg's stream.
  Work run(const Call& call, const std::function<void()>& body);
  void launch(const Call& call, LegMemory& memory, const std::function<void()>& body);
  // The stream, or the thread for CPU tensors, waits for what must come first.
  void come_after_flat(const Call& call, std::optional<c10::Stream> stream);
  // What is launched later comes after this work. CPU tensors: waits for it.
  static void join(const Work& work) { work->wait(); }
  static void join(const std::vector<Work>& works);
  static Steps joining(const Work& work);
  bool takes(const at::Tensor& tensor) const;
  bool takes_blocks(const at::Tensor& whole, const at::Tensor& part) const;
  bool is_on_one_host() const { return !config_.across; }
  int ranks_per_host() const { return config_.local->getSize(); }
  c10::Stream stream_of(c10::Device device);
  // Fails all groups, so that no rank waits for this one, and throws the first reason. REQUIRES: launching_ is held.
  [[noreturn]] void fail(const char* operation, const std::string& why);
  void abort_legs(const std::string& why);
  void drop_local();  // REQUIRES: launching_ is held
  void watch();

  LegConfig config_;  // `local` is null after a failure; changed under both locks
  const std::shared_ptr<Communicator> flat_;
  const std::shared_ptr<Courier> courier_;
  const std::shared_ptr<FlatWorks> flat_works_;
  const std::shared_ptr<const Members> members_;
  std::vector<int> places_;  // by rank: its number among the ranks of its host
  bool by_host_ = true;      // the ranks of a host have consecutive numbers

  std::mutex launching_;
  std::vector<std::pair<c10::Device, c10::Stream>> streams_;
  std::deque<std::shared_ptr<LegMemory>> launched_;  // perhaps not landed
  std::vector<at::Tensor> abandoned_;                // of a call that failed: the device may still use them

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watcher_;
};

}  // namespace braid::adapter
