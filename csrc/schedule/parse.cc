// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <optional>

#include "schedule/text.h"

namespace braid {
namespace {

// Every number of a schedule but the shares fits below this, with room to add two of them.
constexpr uint64_t kNumberLimit = 1u << 30;

// Reads tokens off one line. The first failure is kept: what was expected, and what stood there.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : rest_(line) {}

  bool failed() const { return !expected_.empty(); }
  const std::string& expected() const { return expected_; }
  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }

  bool fail(const std::string& what) {
    if (failed()) return false;
    std::string found(rest_.substr(0, rest_.find_first_of(" \t\r")).substr(0, 20));
    expected_ = "expected " + what + (found.empty() ? ", found the end of the line" : ", found \"" + found + "\"");
    return false;
  }

  bool try_take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  bool take(std::string_view token) { return try_take(token) || fail("\"" + std::string(token) + "\""); }

  std::string_view word() {
    skip_blanks();
    size_t size = rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
    std::string_view word = rest_.substr(0, size);
    return word;
  }

  void drop(std::string_view word) { rest_.remove_prefix(word.size()); }

  template <class T>
  bool number(T* value, const std::string& what, uint64_t limit = kNumberLimit) {
    uint64_t parsed = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), parsed);
    if (error == std::errc::invalid_argument) return fail(what);
    if (error != std::errc() || parsed > limit) return fail(what + " of at most " + std::to_string(limit));
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    *value = static_cast<T>(parsed);
    return true;
  }

  bool rank(Node* node) { return take("r") && number(node, "a rank number"); }

  bool ref(Ref* ref) {
    if (try_take("i")) {
      ref->buffer = Buffer::kInput;
    } else if (try_take("o")) {
      ref->buffer = Buffer::kOutput;
    } else if (try_take("t")) {
      ref->buffer = Buffer::kScratch;
    } else {
      return fail("a chunk such as i0, o0 or t0-3");
    }
    if (!number(&ref->first, "a chunk number")) return false;
    ref->count = 1;
    if (!rest_.starts_with('-') || rest_.starts_with("->")) return true;
    rest_.remove_prefix(1);
    int32_t last = 0;
    if (!number(&last, "a chunk number")) return false;
    if (last <= ref->first) return fail("a chunk after " + std::to_string(ref->first) + " before this");
    ref->count = last - ref->first + 1;
    return true;
  }

 private:
  void skip_blanks() {
    size_t start = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
  }

  std::string_view rest_;
  std::string expected_;
};

bool parse_sources(Cursor& line, std::vector<Source>* sources) {
  do {
    Source source;
    if (line.word().starts_with('r') ? !line.rank(&source.from) : !line.ref(&source.ref)) return false;
    sources->push_back(source);
  } while (line.try_take("+"));
  return true;
}

bool parse_step(Cursor& line, Step* step) {
  std::string_view op = line.word();
  if (op == "send" || op == "recv") {
    step->op = op == "send" ? Op::kSend : Op::kRecv;
    line.drop(op);
    return line.ref(&step->target) && line.take(step->op == Op::kSend ? "->" : "<-") && line.rank(&step->peer);
  }
  if (op == "reduce" || op == "copy") {
    step->op = op == "reduce" ? Op::kReduce : Op::kCopy;
    line.drop(op);
    return line.ref(&step->target) && line.take("=") && parse_sources(line, &step->sources);
  }
  return line.fail("send, recv, reduce or copy");
}

bool parse_header(Cursor& line, Schedule* schedule) {
  std::string_view kind_name = line.word();
  std::optional<CollectiveKind> kind = collective_from_name(kind_name);
  if (!kind) return line.fail("the name of a collective");
  schedule->collective.kind = *kind;
  line.drop(kind_name);
  schedule->family = line.word();
  if (schedule->family.empty()) return line.fail("the name of a family");
  line.drop(schedule->family);
  if (!line.take("ranks=") || !line.number(&schedule->collective.ranks, "a number of ranks")) return false;
  if (has_root(*kind) && !(line.take("root=") && line.number(&schedule->collective.root, "a rank number"))) {
    return false;
  }
  if (!line.take("chunks=") || !line.number(&schedule->chunks, "a number of chunks")) return false;
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
  if (line.word() != wanted || !line.number(&number, "a round")) {
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

bool parse_line(Cursor& line, bool* has_header, Schedule* schedule) {
  if (!*has_header) {
    *has_header = true;
    return parse_header(line, schedule);
  }
  std::vector<Program>& programs = schedule->programs;
  std::string next = "r" + std::to_string(programs.size());
  if (line.word().starts_with('r') || programs.empty()) {
    if (programs.size() == static_cast<size_t>(schedule->collective.ranks)) return line.fail("no further rank");
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
  bool has_header = false;
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
    if (parse_line(line, &has_header, &schedule) && !line.at_end()) line.fail("the end of the line");
    if (line.failed()) return refuse(line.expected());
  }
  ++number;
  if (!has_header) return refuse("expected a schedule, found the end of the text");
  size_t ranks = schedule.collective.ranks;
  if (schedule.programs.size() != ranks) {
    return refuse("expected r" + std::to_string(schedule.programs.size()) + " of " + std::to_string(ranks) +
                  " ranks, found the end of the text");
  }
  return schedule;
}

}  // namespace braid
