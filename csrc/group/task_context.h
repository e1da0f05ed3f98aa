// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "aggregator/aggregator_group.h"
#include "communicator/member.h"
#include "communicator/statistics.h"
#include "executor/board_execution.h"
#include "group/choice.h"
#include "group/peers.h"
#include "group/stall.h"
#include "rendezvous/rendezvous.h"
#include "transport/mailbox.h"

namespace braid {

// What the tasks of a group use of it. The group owns all of it, and outlives its tasks.
struct TaskContext {
  const Member& member;
  const Wires& wires;
  Mailbox& mailbox;
  Statistics& statistics;
  Peers& peers;
  Stalls& stalls;
  AlgorithmChoice& choice;
  AggregatorGroup& aggregators;
  BoardWorkspace workspace = {};  // for the running collective only
};

}  // namespace braid
