// SPDX-License-Identifier: Apache-2.0
// Runs a whole schedule inside one process: every node is a thread, and the wires are loopback or boards. It is
// made for tests, and to try a new planner on real data before it runs on a network.
#pragma once

#include <memory>
#include <vector>

#include "executor/execution.h"
#include "transport/loopback/loopback.h"

namespace braid {

struct RehearsalOptions {
  ExecutionOptions execution;
  LoopbackOptions loopback;
  milliseconds timeout{20'000};
};

// operands[r] is the memory of rank r; aggregators need no memory. Returns the failure of the lowest node.
// kTimeout names the steps that a stuck node waits for. REQUIRES: operands that match the schedule, as for
// Execution.
Status rehearse(const std::shared_ptr<const VerifiedSchedule>& schedule, const std::vector<Operands>& operands,
                const RehearsalOptions& options);

// As rehearse(), over boards in shared memory. Each board has a bounce buffer of `bounce_bytes`. Vectors and
// blocks of `lend_from` bytes and more are lent, if the plan allows it. kUnsupported if the schedule cannot run
// over such boards.
Status rehearse_on_boards(const std::shared_ptr<const VerifiedSchedule>& schedule,
                          const std::vector<Operands>& operands, size_t bounce_bytes, milliseconds timeout,
                          size_t lend_from = Layout::kNever);

}  // namespace braid
