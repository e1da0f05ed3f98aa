// SPDX-License-Identifier: Apache-2.0
// A group's aggregator group: its ranks and the aggregators, as a second group. All ranks form it in a replan. They
// end it in a replan, or after a vote. A large all_reduce goes there if that is faster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/aggregated_all_reduce.h"
#include "aggregator/aggregator_discovery.h"
#include "communicator/communicator.h"
#include "communicator/member.h"
#include "communicator/statistics.h"
#include "links/link_watch.h"

namespace braid {

// A group that tells how fast it is.
class MeasuredGroup : public Communicator {
 public:
  // The predicted time of an all_reduce. Nothing if the group cannot do it.
  virtual std::optional<double> predicted_s(DType dtype, ReduceOp op, int64_t bytes) = 0;
  // The rates that this rank's NIC has passed for this group since the last call.
  virtual SeenRates seen_rates() = 0;
};

// Thread safety: methods without a note may be called from any thread; mutex_ guards what they use. Methods "for
// the carrier" are called by one thread at a time: by the carrier of the running collective, or by the thread
// that replans between two collectives.
class AggregatorGroup {
 public:
  // An all_reduce without aggregators.
  struct Alone {
    std::optional<double> predicted_s;
    double latency_s = 0;  // between the hosts
  };
  // What the group of the ranks does for its aggregator group. Called without a lock.
  struct Home {
    // Forms a group of `nodes` nodes, in which this rank keeps its number.
    std::function<Result<std::shared_ptr<MeasuredGroup>>(const std::shared_ptr<Store>& store, int nodes,
                                                         const std::string& name, const Options& options)>
        form;
    std::function<Alone(DType dtype, ReduceOp op, int64_t bytes)> alone;
    // Called after the aggregator group was formed or has ended. The ranks' own traffic changes with it.
    std::function<void()> changed;
  };

  // Everything but `home` must outlive it. `mailbox`: of the group of the ranks.
  AggregatorGroup(const Member& member, Mailbox& mailbox, Statistics& statistics, const Timeout& timeout,
                  Home home);

  // False: there is no aggregator group, and none will be formed.
  bool may_form() const { return store_ != nullptr; }
  // The aggregator group; null if there is none.
  std::shared_ptr<MeasuredGroup> group() const;
  // The aggregator group, if the all_reduce is faster there; else null.
  std::shared_ptr<MeasuredGroup> faster_for(DType dtype, ReduceOp op, int64_t bytes);
  void abort(const std::string& reason);
  void shutdown(const GiveUp& give_up);
  // Shuts down aggregator groups that have ended. Blocks.
  void shut_down_ended();

  // For the carrier, on the first rank:
  // Waits for as many aggregators as the options ask for, when the group of the ranks forms. Fewer are no failure.
  Status await(const GiveUp& give_up);
  // What all ranks must do in this replan. `first`: the group of the ranks is just forming.
  std::string decide(bool first);

  // For the carrier, on all ranks:
  // Does what decide() returned on the first rank. Does nothing if the text asks for nothing. A failure must fail
  // the group of the ranks.
  Status follow(const std::string& decision);
  // The all_reduce through the aggregators, if that is faster; else null. All ranks decide the same.
  std::unique_ptr<AggregatedAllReduce> all_reduce_for(const Operation& operation, uint64_t sequence);
  // Where all_reduces through aggregators are counted. REQUIRES: all_reduce_for() has returned one.
  Statistics::Row& counters() { return *counters_; }
  // Ends the aggregator group without a failure.
  void part();
  // Ends the aggregator group because the ranks voted that it failed. `why`: the reason that this rank saw.
  void lose(const Status& why);

 private:
  Status form(int aggregators, const std::string& name);
  // Takes the aggregator group out of use; null if there is none.
  std::shared_ptr<MeasuredGroup> take();
  bool is_faster_in(MeasuredGroup& group, DType dtype, ReduceOp op, int64_t bytes);

  const Member& member_;
  Mailbox& mailbox_;
  Statistics& statistics_;
  const Timeout& timeout_;
  const Home home_;
  const std::shared_ptr<Store> store_;  // null: no aggregators may join
  // For the carrier.
  AggregatorDiscovery discovery_;  // on the first rank
  Statistics::Row* counters_ = nullptr;
  int aggregators_ = 0;  // in the group
  size_t operations_ = 0;

  mutable std::mutex mutex_;
  std::shared_ptr<MeasuredGroup> group_;
  std::vector<std::shared_ptr<MeasuredGroup>> ended_;
};

}  // namespace braid
