// SPDX-License-Identifier: Apache-2.0
// A group's choice of algorithm: learns the links between the hosts, and gives every operation its route.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/interruptible_wait.h"
#include "communicator/communicator.h"
#include "communicator/member.h"
#include "group/route.h"
#include "rendezvous/rendezvous.h"
#include "transport/frame.h"
#include "transport/mailbox.h"
#include "tuner/tuner.h"

namespace braid {

// Thread safety: after the first learn() has returned, all functions but learn() may be called from any thread.
// mutex_ guards the tuner and the routes. While it is held, no lock is taken but that of `statistics`.
class AlgorithmChoice {
 public:
  // All arguments must outlive it. The wires may be made later, before learn().
  AlgorithmChoice(const Member& member, const Wires& wires, Mailbox& mailbox, Statistics& statistics)
      : member_(member), wires_(wires), mailbox_(mailbox), statistics_(statistics) {}

  // Learns the links, sets the mailbox's credit and pace by them, and makes the plan. All ranks call it when the
  // group forms, without `again`. They may call it later with `again`, between the same two collectives. Then it
  // measures the links anew, and every operation gets a new route. Blocks. The caller must fail the group if this
  // fails. `give_up` is called only in this call.
  Status learn(bool again, Deadline deadline, const GiveUp& give_up = {});

  bool is_on_several_hosts() const { return is_on_several_hosts_; }
  // How often the ranks have planned anew (replan.h). It grows on all ranks between the same two collectives.
  int epoch() const { return epoch_.load(std::memory_order_acquire); }
  std::shared_ptr<Tuner> tuner() const;
  // The route of an operation. It lives as long as this object.
  Result<const Route*> route_for(const Operation& operation);
  // The predicted time of an all_reduce. Nothing if it is impossible.
  std::optional<double> predicted_s(DType dtype, ReduceOp op, int64_t bytes) const;

 private:
  // The links between the hosts: stated, remembered, measured now, or assumed.
  Result<Topology> learn_links(bool again, Deadline deadline, const GiveUp& give_up);
  // Sets how many bytes may be under way to this rank's NIC.
  void limit_credit(const Topology& topology);
  // Limits sends to the measured rates of both NICs. Null removes the limit, to measure the links.
  void pace_peers(const Topology* topology);

  const Member& member_;
  const Wires& wires_;
  Mailbox& mailbox_;
  Statistics& statistics_;
  bool is_on_several_hosts_ = false;  // set by the first learn()
  std::atomic<int> epoch_{0};         // written with mutex_ held

  mutable std::mutex mutex_;
  std::shared_ptr<Tuner> tuner_;
  std::map<std::tuple<const VerifiedSchedule*, int64_t, uint32_t>, Route> routes_;  // by schedule, chunk and codec
  struct {
    RouteKey key;
    const Route* route = nullptr;
  } last_route_;
};

}  // namespace braid
