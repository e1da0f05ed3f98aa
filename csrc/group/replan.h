// SPDX-License-Identifier: Apache-2.0
// Replanning. Now and then all ranks stop between the same two collectives. Has the rate of a NIC changed? Has an
// aggregator come? The first rank decides, and all ranks do what it says.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/aggregator_group.h"
#include "base/interruptible_wait.h"
#include "communicator/communicator.h"
#include "communicator/member.h"
#include "engine/progress.h"
#include "group/choice.h"
#include "links/link_watch.h"
#include "rendezvous/rendezvous.h"
#include "transport/mailbox.h"

namespace braid {

// Thread safety: is_due() needs the lock under which the group numbers its collectives. The other functions are
// called by one thread at a time: the thread that forms the group, the carrier of the running collective, or the
// thread that replans between two collectives.
class Replanner {
 public:
  // All arguments must outlive it. The wires may be made later, before begin().
  Replanner(const Member& member, Wires& wires, Mailbox& mailbox, AlgorithmChoice& choice,
            AggregatorGroup& aggregators)
      : member_(member), wires_(wires), mailbox_(mailbox), choice_(choice), aggregators_(aggregators) {}

  // Call it once, after the first learn() of `choice`. If aggregators may join, it replans for the first time.
  // Blocks. The group cannot form if this fails. `give_up` is called only in this call.
  Status begin(const GiveUp& give_up);
  // Counts an operation, which all ranks start in the same order. True if a replan is due before it.
  bool is_due(const Operation& operation);
  // Checks whether the plans still suit the network, and whether aggregators wait. All ranks call it between the
  // same two collectives. Blocks. The caller must fail the group if this fails.
  Status replan(Deadline deadline) { return replan(false, deadline, {}); }
  // The rates of the group's own connections and of its aggregator group's, since the last call.
  SeenRates seen_rates();
  // Forgets the usual rates of the NICs. Call it when the group's own traffic changes.
  void traffic_changed() { link_watch_.forget(); }

 private:
  Status replan(bool first, Deadline deadline, const GiveUp& give_up);
  // On the first rank: decides what all ranks do. `seen`: the rates that each rank's NIC has passed lately.
  std::string decide(bool first, const std::vector<SeenRates>& seen);
  Status measure_again(Deadline deadline);
  bool links_may_change() const { return member_.options.links.empty() || member_.options.links == "measure"; }

  const Member& member_;
  Wires& wires_;
  Mailbox& mailbox_;
  AlgorithmChoice& choice_;
  AggregatorGroup& aggregators_;
  LinkWatch link_watch_;  // on the first rank

  // Guarded by the group's lock; may_replan_ is set before the group is used.
  bool may_replan_ = false;  // several hosts, and their links may change or aggregators may join
  bool is_due_ = false;
  size_t since_replan_ = 0;  // large all_reduces since the last replan
  size_t bytes_since_replan_ = 0;
};

// A replan in the group's queue. It runs in a thread of its own, because it waits for other ranks and the progress
// thread must carry other groups.
class ReplanTask final : public Task {
 public:
  // `mailbox`, `bell`: the group's. `deadline`: the deadline of the next operation in the queue.
  ReplanTask(Replanner& replanner, Mailbox& mailbox, DoorbellWord& bell, Deadline deadline)
      : replanner_(replanner), mailbox_(mailbox), bell_(bell), deadline_(deadline) {}
  ~ReplanTask() override;

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return kNoDeadline; }
  bool fail(const Status& why) override;

 private:
  Replanner& replanner_;
  Mailbox& mailbox_;
  DoorbellWord& bell_;
  const Deadline deadline_;
  std::thread thread_;
  std::atomic<bool> done_{false};
};

}  // namespace braid
