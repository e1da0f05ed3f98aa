// SPDX-License-Identifier: Apache-2.0
// Reads the text form of a schedule; text.cc writes it.
#include <optional>

#include "base/cursor.h"
#include "schedule/text.h"

namespace braid {
namespace {

// Every number of a schedule except shares is below this limit; the sum of two such numbers does not overflow.
constexpr uint64_t kNumberLimit = 1u << 30;

bool parse_rank(Cursor& line, Node* node) {
  return line.take("r") && line.number(node, "a rank number", kNumberLimit);
}

bool parse_ref(Cursor& line, Ref* ref) {
  if (line.try_take("i")) {
    ref->buffer = Buffer::kInput;
  } else if (line.try_take("o")) {
    ref->buffer = Buffer::kOutput;
  } else if (line.try_take("t")) {
    ref->buffer = Buffer::kScratch;
  } else {
    return line.fail("a chunk such as i0, o0 or t0-3");
  }
  if (!line.number(&ref->first, "a chunk number", kNumberLimit)) return false;
  ref->count = 1;
  if (line.next_is("->") || !line.next_is("-")) return true;
  int32_t last = 0;
  if (!line.take("-") || !line.number(&last, "a chunk number", kNumberLimit)) return false;
  if (last <= ref->first) return line.fail("a chunk after " + std::to_string(ref->first) + " before this");
  ref->count = last - ref->first + 1;
  return true;
}

bool parse_sources(Cursor& line, std::vector<Source>* sources) {
  do {
    Source source;
    if (line.word().starts_with('r') ? !parse_rank(line, &source.from) : !parse_ref(line, &source.ref))
      return false;
    sources->push_back(source);
  } while (line.try_take("+"));
  return true;
}

bool parse_step(Cursor& line, Step* step) {
  std::string_view op = line.word();
  if (op == "send" || op == "recv") {
    step->op = op == "send" ? Op::kSend : Op::kRecv;
    line.drop(op);
    return parse_ref(line, &step->target) && line.take(step->op == Op::kSend ? "->" : "<-") &&
           parse_rank(line, &step->peer);
  }
  if (op == "reduce" || op == "copy") {
    step->op = op == "reduce" ? Op::kReduce : Op::kCopy;
    line.drop(op);
    return parse_ref(line, &step->target) && line.take("=") && parse_sources(line, &step->sources);
  }
  return line.fail("send, recv, reduce or copy");
}

// Sets `nodes` to the number of programs that must follow.
bool parse_header(Cursor& line, Schedule* schedule, size_t* nodes) {
  std::string_view kind_name = line.word();
  std::optional<CollectiveKind> kind = collective_from_name(kind_name);
  if (!kind) return line.fail("the name of a collective");
  schedule->collective.kind = *kind;
  line.drop(kind_name);
  schedule->algorithm = line.word();
  if (schedule->algorithm.empty()) return line.fail("the name of an algorithm");
  line.drop(schedule->algorithm);
  if (!line.take("ranks=") || !line.number(&schedule->collective.ranks, "a number of ranks", kNumberLimit))
    return false;
  int aggregators = 0;
  if (line.try_take("aggregators=") && !line.number(&aggregators, "a number of aggregators", kNumberLimit))
    return false;
  *nodes = static_cast<size_t>(schedule->collective.ranks) + static_cast<size_t>(aggregators);
  if (has_root(*kind) &&
      !(line.take("root=") && line.number(&schedule->collective.root, "a rank number", kNumberLimit))) {
    return false;
  }
  if (!line.take("chunks=") || !line.number(&schedule->chunks, "a number of chunks", kNumberLimit)) return false;
  if (!line.try_take("shares=")) return true;
  do {
    uint64_t share = 0;
    if (!line.number(&share, "a share", UINT64_MAX)) return false;
    schedule->shares.push_back(share);
  } while (line.try_take(","));
  return true;
}

bool parse_round(Cursor& line, Program* program) {
  int number = 0;
  std::string wanted = std::to_string(program->size());
  if (line.word() != wanted || !line.number(&number, "a round", kNumberLimit)) {
    return line.fail("round " + wanted + " or the next rank");
  }
  if (!line.take(":")) return false;
  program->emplace_back();
  if (line.at_end()) return true;
  do {
    Step step;
    if (!parse_step(line, &step)) return false;
    program->back().push_back(std::move(step));
  } while (line.try_take(";"));
  return true;
}

bool parse_line(Cursor& line, std::optional<size_t>* nodes, Schedule* schedule) {
  if (!*nodes) return parse_header(line, schedule, &nodes->emplace());
  std::vector<Program>& programs = schedule->programs;
  std::string next = "r" + std::to_string(programs.size());
  if (line.word().starts_with('r') || programs.empty()) {
    if (programs.size() == **nodes) return line.fail("no further rank");
    if (line.word() != next) return line.fail(next);
    line.drop(next);
    programs.emplace_back();
    return true;
  }
  return parse_round(line, &programs.back());
}

}  // namespace

Result<Schedule> schedule_from_text(std::string_view text) {
  Schedule schedule;
  std::optional<size_t> nodes;  // once the header was read
  size_t number = 0;
  auto refuse = [&](const std::string& reason) {
    return Status(Code::kInvalidArgument, "line " + std::to_string(number) + ": " + reason);
  };
  while (!text.empty()) {
    ++number;
    size_t size = text.find('\n');
    Cursor line(text.substr(0, size));
    text.remove_prefix(size == std::string_view::npos ? text.size() : size + 1);
    if (line.at_end()) continue;
    if (parse_line(line, &nodes, &schedule) && !line.at_end()) line.fail("the end of the line");
    if (line.failed()) return refuse(line.expected());
  }
  ++number;
  if (!nodes) return refuse("expected a schedule, found the end of the text");
  if (schedule.programs.size() != *nodes) {
    return refuse("expected r" + std::to_string(schedule.programs.size()) + " of " + std::to_string(*nodes) +
                  " nodes, found the end of the text");
  }
  return schedule;
}

}  // namespace braid
