// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.h"

namespace braid {
namespace {

std::string rank_text(Node node) { return "r" + std::to_string(node); }

std::string source_text(const Source& source) {
  return source.is_remote() ? rank_text(source.from) : to_text(source.ref);
}

std::string assignment(const char* op, const Step& step) {
  std::string text = op + to_text(step.target) + " =";
  for (size_t index = 0; index < step.sources.size(); ++index) {
    text += (index == 0 ? " " : " + ") + source_text(step.sources[index]);
  }
  return text;
}

}  // namespace

std::string to_text(const Ref& ref) {
  const char* letters = "iot";
  auto buffer = static_cast<size_t>(ref.buffer);
  std::string text(1, buffer < 3 ? letters[buffer] : '?');
  text += std::to_string(ref.first);
  if (ref.count != 1) text += "-" + std::to_string(int64_t{ref.first} + ref.count - 1);
  return text;
}

std::string to_text(const Step& step) {
  switch (step.op) {
    case Op::kSend: return "send " + to_text(step.target) + " -> " + rank_text(step.peer);
    case Op::kRecv: return "recv " + to_text(step.target) + " <- " + rank_text(step.peer);
    case Op::kReduce: return assignment("reduce ", step);
    case Op::kCopy: return assignment("copy ", step);
  }
  return "unknown step";
}

std::string to_text(const Schedule& schedule, Node node, size_t round, size_t step) {
  return std::string(name_of(schedule.collective.kind)) + "/" + schedule.algorithm + " " + rank_text(node) +
         " round " + std::to_string(round) + " step " + std::to_string(step) + " (" +
         to_text(schedule.programs[node][round][step]) + ")";
}

std::string to_text(const Schedule& schedule) {
  const Collective& collective = schedule.collective;
  std::string text(name_of(collective.kind));
  text += " " + schedule.algorithm + " ranks=" + std::to_string(collective.ranks);
  if (schedule.aggregators() > 0) text += " aggregators=" + std::to_string(schedule.aggregators());
  if (has_root(collective.kind)) text += " root=" + std::to_string(collective.root);
  text += " chunks=" + std::to_string(schedule.chunks);
  for (size_t index = 0; index < schedule.shares.size(); ++index) {
    text += (index == 0 ? " shares=" : ",") + std::to_string(schedule.shares[index]);
  }
  text += "\n";
  for (size_t node = 0; node < schedule.programs.size(); ++node) {
    text += rank_text(static_cast<Node>(node)) + "\n";
    const Program& program = schedule.programs[node];
    for (size_t round = 0; round < program.size(); ++round) {
      text += "  " + std::to_string(round) + ":";
      for (size_t index = 0; index < program[round].size(); ++index) {
        text += (index == 0 ? " " : "; ") + to_text(program[round][index]);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace braid
