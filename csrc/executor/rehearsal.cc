// SPDX-License-Identifier: Apache-2.0
#include "executor/rehearsal.h"

#include <functional>
#include <future>
#include <thread>

#include "base/caught.h"
#include "executor/board_execution.h"
#include "transport/shm/local_boards.h"

namespace braid {
namespace {

// While it lives, inputs that arrive ring the bell.
class Listening {
 public:
  Listening(Feed* feed, DoorbellWord& bell) : feed_(feed) {
    if (feed_ != nullptr) feed_->listen([&bell] { ring(bell); });
  }
  ~Listening() {
    if (feed_ != nullptr) feed_->listen(nullptr);
  }

 private:
  Feed* const feed_;
};

Status run_node(Node node, Execution& execution, Mailbox& mailbox, DoorbellWord& bell, Deadline deadline) {
  Waiter waiter(bell);
  while (true) {
    const bool moved = mailbox.poll();
    if (execution.advance()) return execution.status();
    if (moved) {
      waiter.moved();
      continue;
    }
    if (Clock::now() >= deadline) {
      return {Code::kTimeout, "node " + std::to_string(node) + " is stuck in: " + execution.waiting_for(3), node};
    }
    waiter.idle(deadline);
  }
}

Status run_shared(Node node, BoardExecution& execution, DoorbellWord& bell, Deadline deadline) {
  Waiter waiter(bell);
  while (!execution.advance()) {
    if (execution.moved()) {
      waiter.moved();
      continue;
    }
    if (Clock::now() >= deadline) {
      return {Code::kTimeout, "node " + std::to_string(node) + " is stuck in: " + execution.waiting_for(3), node};
    }
    waiter.idle(deadline);
  }
  return execution.status();
}

// Adds the operands of the aggregators.
std::vector<Operands> with_aggregators(const Schedule& schedule, std::vector<Operands> operands) {
  if (schedule.aggregators() == 0) return operands;
  const Operands& first = operands[0];
  const size_t bytes = first.inputs.empty() ? first.outputs[0].size() : first.inputs[0].size();
  operands.resize(schedule.programs.size(), {first.dtype, first.op, {}, {}, bytes});
  return operands;
}

// Runs each node in a thread. Returns the failure of the lowest node.
Status on_threads(int nodes, const std::function<Status(Node)>& run) {
  std::vector<Status> outcomes(static_cast<size_t>(nodes));
  std::vector<std::thread> threads;
  std::promise<bool> all_are_there;  // no node begins before all threads have started
  const std::shared_future<bool> begin = all_are_there.get_future().share();
  const Status thrown = caught("starting the threads of a rehearsal", [&] {
    for (Node node = 0; node < nodes; ++node) {
      threads.emplace_back([&outcome = outcomes[static_cast<size_t>(node)], begin, &run, node] {
        const Status broke = caught("rehearsing", [&] {
          if (begin.get()) outcome = run(node);
        });
        if (!broke.ok()) outcome = broke;
      });
    }
  });
  all_are_there.set_value(thrown.ok());
  for (std::thread& thread : threads) thread.join();
  if (!thrown.ok()) return thrown;
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return {};
}

}  // namespace

Status rehearse(const std::shared_ptr<const VerifiedSchedule>& schedule, const std::vector<Operands>& operands,
                const RehearsalOptions& options) {
  const int nodes = schedule->schedule().nodes();
  const std::vector<Operands> all = with_aggregators(schedule->schedule(), operands);
  LoopbackHub hub(nodes, options.loopback);
  std::vector<DoorbellWord> bells(static_cast<size_t>(nodes));
  std::vector<std::unique_ptr<Mailbox>> mailboxes;
  for (Node node = 0; node < nodes; ++node) {
    DoorbellWord& bell = bells[static_cast<size_t>(node)];
    mailboxes.push_back(std::make_unique<Mailbox>(node, nodes, bell));
    for (Node peer = 0; peer < nodes; ++peer) {
      if (peer != node) mailboxes.back()->attach(peer, hub.channel(node, peer, *mailboxes.back(), bell));
    }
  }
  const Deadline deadline = deadline_after(options.timeout);
  return on_threads(nodes, [&](Node node) {
    const auto i = static_cast<size_t>(node);
    Status outcome;
    const Status thrown = caught("rehearsing", [&] {
      Pool pool(0);
      const Listening listening(all[i].feed, bells[i]);
      Execution execution(schedule, node, all[i], *mailboxes[i], 1, pool, options.execution);
      const Status broke =
          caught("rehearsing", [&] { outcome = run_node(node, execution, *mailboxes[i], bells[i], deadline); });
      if (!broke.ok()) outcome = broke;
      if (!outcome.ok()) mailboxes[i]->fail(outcome);
    });
    if (thrown.ok()) return outcome;
    mailboxes[i]->fail_here(thrown);
    return thrown;
  });
}

Status rehearse_on_boards(const std::shared_ptr<const VerifiedSchedule>& schedule,
                          const std::vector<Operands>& operands, size_t bounce_bytes, milliseconds timeout,
                          size_t lend_from) {
  const int nodes = schedule->schedule().nodes();
  const std::vector<Operands> all = with_aggregators(schedule->schedule(), operands);
  const bool lends = lend_from != Layout::kNever;
  BoardPlan plan = plan_for_boards(*schedule, {bounce_bytes, lends, lends});  // a crowded host lends more
  if (plan.lend_from != Layout::kNever) plan.lend_from = lend_from;
  if (!plan.possible)
    return {Code::kUnsupported, "too much for a bounce buffer of " + std::to_string(bounce_bytes) + " bytes"};
  shm::LocalBoards boards(nodes, bounce_bytes);
  const Deadline deadline = deadline_after(timeout);
  return on_threads(nodes, [&](Node node) {
    const auto i = static_cast<size_t>(node);
    Pool pool(0);
    BoardWorkspace workspace;
    const Listening listening(all[i].feed, boards.bell(node));
    BoardExecution execution(schedule, plan, node, all[i], boards[node], 1, pool, workspace);
    return run_shared(node, execution, boards.bell(node), deadline);
  });
}

}  // namespace braid
