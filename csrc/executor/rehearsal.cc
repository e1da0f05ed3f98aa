// SPDX-License-Identifier: Apache-2.0
#include "executor/rehearsal.h"

#include <thread>

namespace braid {
namespace {

Status run_node(Node node, Execution& execution, Mailbox& mailbox, DoorbellWord& bell, Deadline deadline) {
  Waiter waiter(bell);
  while (true) {
    waiter.take_ticket();
    const bool moved = mailbox.poll();
    if (execution.advance()) return execution.status();
    if (moved) continue;
    if (Clock::now() >= deadline) {
      return {Code::kTimeout, "node " + std::to_string(node) + " is stuck in: " + execution.waiting_for(3), node};
    }
    waiter.wait(deadline);
  }
}

}  // namespace

Status rehearse(const std::shared_ptr<const VerifiedSchedule>& schedule, const std::vector<Operands>& operands,
                const RehearsalOptions& options) {
  const int nodes = schedule->schedule().collective.ranks;
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
  std::vector<Status> outcomes(static_cast<size_t>(nodes));
  std::vector<std::thread> threads;
  for (Node node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      const auto i = static_cast<size_t>(node);
      Pool pool(0);
      Execution execution(schedule, node, operands[i], *mailboxes[i], 1, pool, options.execution);
      outcomes[i] = run_node(node, execution, *mailboxes[i], bells[i], deadline);
      if (!outcomes[i].ok()) mailboxes[i]->fail(outcomes[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return {};
}

}  // namespace braid
