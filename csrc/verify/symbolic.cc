// SPDX-License-Identifier: Apache-2.0
#include "verify/symbolic.h"

#include <string>
#include <vector>

#include "schedule/text.h"
#include "verify/expressions.h"

namespace braid {
namespace {

using Id = Expressions::Id;
constexpr Id kNothing = -1;

class Run {
 public:
  Run(const Schedule& schedule, const Order& order, const Memory& memory)
      : schedule_(schedule),
        order_(order),
        memory_(memory),
        expressions_(schedule.collective.ranks),
        cells_(memory.size(), kNothing),
        arrived_(order.messages.size()) {
    waiting_.resize(schedule.programs.size());
    for (Node node = 0; node < schedule.collective.ranks; ++node) {
      int count = input_chunks(schedule.collective, schedule.chunks, node);
      for (int chunk = 0; chunk < count; ++chunk) {
        cells_[memory.cell(node, Buffer::kInput, chunk)] =
            expressions_.leaf(node, memory.input_block(node, chunk));
      }
    }
  }

  Status run(const OnComplete& on_complete) {
    for (const Event& event : order_.events) {
      Status status = event.message >= 0 ? move(event.message) : run_local(event.node, event.round, on_complete);
      if (!status.ok()) return status;
    }
    return check_result();
  }

 private:
  const Step& step_at(const Endpoint& at) const { return schedule_.programs[at.node][at.round][at.step]; }
  Status refuse(const Endpoint& at, const std::string& reason) const {
    return {Code::kInvalidArgument, to_text(schedule_, at.node, at.round, at.step) + ": " + reason};
  }

  Status move(int32_t index) {
    const Message& message = order_.messages[index];
    const Ref& sent = step_at(message.from).target;
    const Ref& target = step_at(message.to).target;
    if (sent.count != target.count) {
      return refuse(message.to, "the message from r" + std::to_string(message.from.node) + " has " +
                                    std::to_string(sent.count) + " chunks");
    }
    std::vector<Id> content;
    Status status = load(message.from, sent, &content);
    if (!status.ok()) return status;
    if (message.to.source < 0) return store(message.to, content);
    arrived_[index] = std::move(content);
    waiting_[message.to.node].push_back(index);
    return {};
  }

  Status run_local(Node node, int32_t round, const OnComplete& on_complete) {
    const Round& steps = schedule_.programs[node][round];
    for (size_t index = 0; index < steps.size(); ++index) {
      Endpoint at{node, round, static_cast<int32_t>(index), -1};
      Status status;
      if (steps[index].op == Op::kCopy) status = copy(at);
      if (steps[index].op == Op::kReduce) status = reduce(at, on_complete);
      if (!status.ok()) return status;
    }
    for (int32_t message : waiting_[node]) arrived_[message].clear();
    waiting_[node].clear();
    return {};
  }

  Status copy(const Endpoint& at) {
    std::vector<Id> content;
    Status status = load(at, step_at(at).sources[0].ref, &content);
    return status.ok() ? store(at, content) : status;
  }

  Status reduce(const Endpoint& at, const OnComplete& on_complete) {
    const Step& step = step_at(at);
    std::vector<std::vector<Id>> contents(step.sources.size());
    for (size_t index = 0; index < contents.size(); ++index) {
      if (step.sources[index].is_remote()) continue;
      Status status = load(at, step.sources[index].ref, &contents[index]);
      if (!status.ok()) return status;
    }
    for (int32_t message : waiting_[at.node]) {
      const Endpoint& to = order_.messages[message].to;
      if (to.step == at.step) contents[to.source] = arrived_[message];
    }
    std::vector<Id> results;
    std::vector<Id> operands(contents.size());
    int complete = 0;
    for (int k = 0; k < step.target.count; ++k) {
      for (size_t index = 0; index < contents.size(); ++index) operands[index] = contents[index][k];
      Status status = combine(at, operands, &results);
      if (!status.ok()) return status;
      if (expressions_.is_complete(results.back())) ++complete;
    }
    if (complete != 0 && complete != step.target.count) {
      return refuse(at, "completes some of its chunks and not the others");
    }
    if (complete != 0) on_complete(at.node, at.round, at.step);
    return store(at, results);
  }

  Status combine(const Endpoint& at, const std::vector<Id>& operands, std::vector<Id>* results) {
    for (Id operand : operands) {
      if (expressions_.block(operand) == expressions_.block(operands[0])) continue;
      return refuse(at, "combines " + describe(operands[0]) + " with " + describe(operand));
    }
    std::optional<Id> result = expressions_.combine(operands);
    if (!result) {
      std::string held;
      for (Id operand : operands)
        held += (held.empty() ? "" : " + ") + ("(" + expressions_.contributors(operand) + ")");
      return refuse(at, "counts a contribution twice: " + held);
    }
    results->push_back(*result);
    return {};
  }

  Status load(const Endpoint& at, const Ref& ref, std::vector<Id>* content) const {
    for (int k = 0; k < ref.count; ++k) {
      Id id = cells_[memory_.cell(at.node, ref.buffer, ref.first + k)];
      if (id == kNothing) {
        return refuse(at, "reads " + to_text(Ref{ref.buffer, ref.first + k, 1}) + ", which holds nothing yet");
      }
      content->push_back(id);
    }
    return {};
  }

  Status store(const Endpoint& at, const std::vector<Id>& content) {
    const Ref& ref = step_at(at).target;
    for (int k = 0; k < ref.count; ++k) {
      if (!memory_.fits(at.node, ref.buffer, ref.first + k, expressions_.block(content[k]))) {
        return refuse(at, "puts " + describe(content[k]) + " into " + to_text(Ref{ref.buffer, ref.first + k, 1}) +
                              ", the place of another");
      }
      cells_[memory_.cell(at.node, ref.buffer, ref.first + k)] = content[k];
    }
    return {};
  }

  std::string describe(Id id) const {
    Block block = expressions_.block(id);
    int ranks = schedule_.collective.ranks;
    if (schedule_.collective.kind != CollectiveKind::kAllToAll) return "chunk " + std::to_string(block);
    return "the block from r" + std::to_string(block / ranks) + " to r" + std::to_string(block % ranks);
  }

  Status check_result() {
    std::vector<Id> first(schedule_.chunks, kNothing);
    std::vector<Node> first_node(schedule_.chunks, 0);
    for (Node node = 0; node < schedule_.collective.ranks; ++node) {
      int count = output_chunks(schedule_.collective, schedule_.chunks, node);
      for (int chunk = 0; chunk < count; ++chunk) {
        Id id = cells_[memory_.cell(node, Buffer::kOutput, chunk)];
        std::string reason = judge(node, chunk, id);
        if (reason.empty() && is_reduction(schedule_.collective.kind)) {
          Block block = memory_.output_block(node, chunk);
          if (first[block] == kNothing) {
            first[block] = id;
            first_node[block] = node;
          } else if (first[block] != id) {
            reason = "was computed in another way than on r" + std::to_string(first_node[block]);
          }
        }
        if (!reason.empty()) {
          return {Code::kInvalidArgument, std::string(name_of(schedule_.collective.kind)) + "/" +
                                              schedule_.algorithm + " r" + std::to_string(node) +
                                              ": in the end o" + std::to_string(chunk) + " " + reason};
        }
      }
    }
    return {};
  }

  // Returns "" if output `chunk` of `node` must end with `id`, otherwise what is wrong. store() has checked the
  // block.
  std::string judge(Node node, int chunk, Id id) {
    if (id == kNothing) return "holds nothing";
    if (is_reduction(schedule_.collective.kind)) {
      return expressions_.is_complete(id) ? "" : "lacks " + expressions_.missing_ranks(id);
    }
    Node owner = schedule_.collective.root;
    if (schedule_.collective.kind == CollectiveKind::kAllGather ||
        schedule_.collective.kind == CollectiveKind::kGather ||
        schedule_.collective.kind == CollectiveKind::kAllToAll) {
      owner = chunk;
    }
    Id wanted = expressions_.leaf(owner, memory_.output_block(node, chunk));
    return id == wanted ? "" : "holds " + describe(id) + " of " + expressions_.contributors(id);
  }

  const Schedule& schedule_;
  const Order& order_;
  const Memory& memory_;
  Expressions expressions_;
  std::vector<Id> cells_;
  std::vector<std::vector<Id>> arrived_;       // per message, its content while it waits for its reduce
  std::vector<std::vector<int32_t>> waiting_;  // per node, the messages that wait in its current round
};

}  // namespace

Status run_symbolically(const Schedule& schedule, const Order& order, const Memory& memory,
                        const OnComplete& on_complete) {
  return Run(schedule, order, memory).run(on_complete);
}

}  // namespace braid
