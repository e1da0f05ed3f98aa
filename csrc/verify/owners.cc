// SPDX-License-Identifier: Apache-2.0
#include "verify/owners.h"

#include <algorithm>

#include "schedule/order.h"

namespace braid {
namespace {

struct Owner {
  Node node = -1;
  size_t round = 0;  // of the reduce that completes the chunk
  Ref target;        // of that reduce: the chunk, and the chunks completed with it
};

class Ownership {
 public:
  Ownership(const VerifiedSchedule& verified, const std::vector<int>& hosts)
      : verified_(verified),
        schedule_(verified.schedule()),
        hosts_(hosts),
        owners_(static_cast<size_t>(schedule_.chunks)) {}

  // Checks rules 1 and 3 of owners.h.
  bool finds_owners() {
    for (Node node = 0; node < schedule_.nodes(); ++node) {
      const Program& program = schedule_.programs[static_cast<size_t>(node)];
      for (size_t round = 0; round < program.size(); ++round) {
        for (size_t i = 0; i < program[round].size(); ++i) {
          const Step& step = program[round][i];
          if (step.op != Op::kReduce) continue;
          const bool completes = verified_.facts(node, round, i).completes;
          if (completes != has_far_source(step, node)) return false;
          if (completes && !own({node, round, step.target})) return false;
        }
      }
    }
    return std::all_of(owners_.begin(), owners_.end(), [](const Owner& owner) { return owner.node >= 0; });
  }

  // Checks rule 2 of owners.h.
  bool sends_only_what_it_may() const {
    const Result<Order> order = order_of(schedule_);
    if (!order.ok()) return false;
    return std::all_of(order.value().messages.begin(), order.value().messages.end(), [&](const Message& message) {
      if (!is_far(message.from.node, message.to.node)) return true;
      const Step& sent = step_at(message.from);
      const bool is_kept = step_at(message.to).op == Op::kRecv;
      return is_kept ? is_sum(sent.target, message.from) : !is_owned_by(message.from.node, sent.target);
    });
  }

 private:
  bool is_far(Node a, Node b) const { return hosts_[static_cast<size_t>(a)] != hosts_[static_cast<size_t>(b)]; }
  const Step& step_at(const Endpoint& at) const {
    return schedule_
        .programs[static_cast<size_t>(at.node)][static_cast<size_t>(at.round)][static_cast<size_t>(at.step)];
  }
  bool has_far_source(const Step& step, Node node) const {
    return std::any_of(step.sources.begin(), step.sources.end(),
                       [&](const Source& source) { return source.is_remote() && is_far(source.from, node); });
  }
  bool own(const Owner& owner) {
    if (owner.target.buffer != Buffer::kOutput) return false;
    // The only output of a reduce_scatter is the block of the node's own number.
    const int first = is_vector(schedule_.collective.kind) ? owner.target.first : owner.node;
    for (int chunk = first; chunk < first + owner.target.count; ++chunk) {
      Owner& found = owners_[static_cast<size_t>(chunk)];
      if (found.node >= 0) return false;
      found = owner;
    }
    return true;
  }
  bool is_sum(const Ref& ref, const Endpoint& from) const {
    const Owner& owner = owners_[static_cast<size_t>(ref.first)];
    return is_vector(schedule_.collective.kind) && owner.node == from.node && owner.target == ref &&
           owner.round < static_cast<size_t>(from.round);
  }

  bool is_owned_by(Node node, const Ref& ref) const {
    return std::any_of(owners_.begin() + ref.first, owners_.begin() + ref.first + ref.count,
                       [&](const Owner& owner) { return owner.node == node; });
  }

  const VerifiedSchedule& verified_;
  const Schedule& schedule_;
  const std::vector<int>& hosts_;
  std::vector<Owner> owners_;  // by chunk
};

}  // namespace

bool has_owners(const VerifiedSchedule& schedule, const std::vector<int>& hosts) {
  const Schedule& own = schedule.schedule();
  const bool adds_up =
      own.collective.kind == CollectiveKind::kAllReduce || own.collective.kind == CollectiveKind::kReduceScatter;
  if (!adds_up || own.aggregators() > 0) return false;
  if (hosts.size() != own.programs.size()) return false;
  Ownership ownership(schedule, hosts);
  return ownership.finds_owners() && ownership.sends_only_what_it_may();
}

}  // namespace braid
