// SPDX-License-Identifier: Apache-2.0
// A parameter server and what its workers call, in any order (parameters/server.h). The target does what the lanes of a
// session do: it refuses what check() refuses, finds memory, and has one call of a worker and lane at a time.
//
//   bytes 0-3     mode, rule, whether the server has a limit of memory, first workers
//   the rest      events: a kind, and then what it needs
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "fuzz/targets.h"
#include "parameters/memory_needs.h"
#include "parameters/server.h"

namespace braid::fuzz {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kMostEvents = 200;
constexpr std::array<Extent, 2> kExtents = {{{0, 5}, {5, 3}}};
constexpr std::array kModes = {"async",
                               "round_robin",
                               "ssp",
                               "sync",
                               "quorum:at_least=2,grace_ms=0",
                               "quorum:at_least=2,grace_ms=0,mean_rounds=2,late=goes_on"};
constexpr std::array kRules = {"sgd", "sgd:momentum", "sgd:compensates", "adam", "elastic", "add"};

uint64_t number_of(Reader& reader) {
  constexpr std::array<uint64_t, 8> kNumbers = {0, 1, 2, 3, 4, 9, uint64_t{1} << 63, UINT64_MAX};
  return kNumbers[reader.one_of(kNumbers.size())];
}

// A call in a lane of a worker.
struct Open {
  Job job;
  Table table;
  std::vector<float> memory;  // of a worker of this process
  bool is_submitted = false;
};

class World {
 public:
  explicit World(Reader& reader) : reader_(reader) {
    options_.mode = mode_from_text(mode_ = kModes[reader.one_of(kModes.size())]).value();
    if (options_.mode == Mode::kQuorum) options_.quorum = quorum_from_text(mode_).value();
    options_.rule = rule_from_text(kRules[reader.one_of(kRules.size())]).value();
    options_.buffers = 2;
    options_.staleness = 1;
    options_.replicas = 1;
    if (reader.byte() % 2 == 1) {
      options_.budget = std::make_shared<MemoryBudget>(60);
      options_.promised_bytes = bytes_needed(options_, kExtents[0].count, {}, kWorkers);
    }
    server_ = std::make_unique<Server>(options_, std::vector<Extent>(kExtents.begin(), kExtents.end()), bell_);
    server_->await_first(static_cast<int>(reader.one_of(kWorkers)));
  }

  void play() {
    for (size_t events = 0; !reader_.empty() && events < kMostEvents; ++events) {
      event();
      for (const int worker : who_has_calls()) move(worker);
      check_memory();
    }
    server_->close({Code::kAborted, "over"});
    for (auto& [lane, open] : open_) {
      require(!open->is_submitted || open->job.done.load(), "who closes has answered all");
      server_->cancel(open->job);
      server_->release(open->job);
    }
  }

 private:
  using Lane = std::pair<int, size_t>;

  int worker() {
    const auto number = static_cast<int>(reader_.one_of(kWorkers + 1));
    return number == kWorkers ? source_number(1) : number;
  }

  void event() {
    switch (reader_.one_of(12)) {
      case 0: admit(worker()); break;
      case 1: end(worker(), reader_.byte() % 2 == 0); break;
      case 2: server_->leave(); break;
      case 3: static_cast<void>(server_->end_late_rounds()); break;
      case 4: server_->set_backup(reader_.byte() % 2 == 0); break;
      case 5: copy(); break;
      case 6: leave(worker()); break;
      default: call(worker()); break;
    }
  }

  void admit(int worker) {
    if (!server_->admit(worker, "").ok()) return;
    joined_.insert(worker);
    server_->has_heard(worker);
  }

  // The worker's session ends.
  void end(int worker, bool died) {
    for (auto at = open_.begin(); at != open_.end();) {
      Open& open = *at->second;
      if (at->first.first != worker) {
        ++at;
        continue;
      }
      server_->cancel(open.job);
      server_->release(open.job);
      at = open_.erase(at);
    }
    if (joined_.erase(worker) > 0) server_->dismiss(worker, died);
  }

  void leave(int worker) {
    if (!joined_.contains(worker) || is_source(worker) || has_calls(worker)) return;
    Verdict verdict = Verdict::kDone;
    const bool has_left = server_->farewell(worker, verdict).ok() && verdict == Verdict::kDone;
    if (has_left) end(worker, false);
  }

  void copy() {
    Server::Copy copy;
    if (!server_->take_copy(copy)) return;
    require(copy.numbers.size() == whole_floats(options_, kExtents[static_cast<size_t>(copy.shard)].count),
            "a copy is a whole shard");
    if (reader_.byte() % 2 == 0) return server_->note_copy(copy);
    server_->give_way(copy.shard, 1, number_of(reader_), number_of(reader_));
  }

  void call(int worker) {
    auto open = std::make_unique<Open>();
    Call& call = open->job.call;
    call.kind = static_cast<CallKind>(reader_.byte() % (kLastCallKind + 2));
    call.hand_over = static_cast<HandOver>(reader_.byte() % 5);
    call.shard = static_cast<uint16_t>(reader_.one_of(kExtents.size() + 1));
    call.moves = number_of(reader_);
    call.base = number_of(reader_);
    call.steps = number_of(reader_);
    const uint8_t more = reader_.byte();
    call.place = more % 3;
    call.scale = more % 7 == 0 ? 0 : 1;
    call.count = kExtents[std::min<size_t>(call.shard, 1)].count - (more % 11 == 0 ? 1 : 0);
    RuleNumbers numbers;
    numbers.rate = more % 5 == 0 ? -1 : 0.5;
    open->table = {{more % 13 == 0 ? 6u : 8u, numbers}};
    call.body_bytes = body_bytes_of(call) + (more % 17 == 0 ? 4 : 0);
    if (call.kind == CallKind::kJoin || call.kind == CallKind::kLeave) return;
    if (!check(call, server_->limits()).ok() || !joined_.contains(worker)) return end(worker, true);
    const Lane lane{worker, lane_of(call)};
    if (open_.contains(lane)) return;
    open->job.worker = worker;
    open->job.is_remote = worker % 2 == 0;
    open->job.table = &open->table;
    if (!open->job.is_remote) {
      open->memory.assign(std::max<size_t>(whole_floats(options_, call.count), kMapTextBytes), 1.0f);
      open->job.update = open->job.result = open->memory.data();
    }
    open_.emplace(lane, std::move(open));
    move(worker);
  }

  uint64_t body_bytes_of(const Call& call) const {
    if (is_push(call.kind)) return call.count * sizeof(float);
    if (call.kind == CallKind::kInstall) return install_floats(call) * sizeof(float);
    if (has_whole_body(call)) return snapshot_floats(call, server_->state_vectors()) * sizeof(float);
    return 0;
  }

  bool has_calls(int worker) const {
    return std::any_of(open_.begin(), open_.end(), [&](const auto& row) { return row.first.first == worker; });
  }
  std::set<int> who_has_calls() const {
    std::set<int> workers;
    for (const auto& [lane, open] : open_) workers.insert(lane.first);
    return workers;
  }

  // What the lanes of a worker do when they are polled.
  void move(int worker) {
    for (auto at = open_.begin(); at != open_.end();) {
      Open& open = *at->second;
      if (at->first.first == worker) {
        if (!open.is_submitted && has_memory(open)) {
          open.is_submitted = true;
          server_->submit(open.job);
        }
        if (open.is_submitted && open.job.done.load()) {
          check_answer(open.job);
          server_->release(open.job);
          at = open_.erase(at);
          continue;
        }
      }
      ++at;
    }
  }

  bool has_memory(Open& open) {
    Job& job = open.job;
    if (!job.is_remote || job.call.body_bytes == 0) {
      if (job.is_remote && job.call.kind == CallKind::kMap) {
        open.memory.resize(kMapTextBytes);
        job.result = open.memory.data();
      }
      return true;
    }
    Floats& memory = has_whole_body(job.call) ? job.whole : job.buffer;
    memory = has_whole_body(job.call) ? server_->acquire_whole(job) : server_->acquire(job);
    if (!memory) return false;
    std::fill_n(memory.get(), job.call.body_bytes / sizeof(float), 1.0f);
    job.update = job.result = memory.get();
    return true;
  }

  void check_answer(const Job& job) const {
    require(job.status.ok() == (job.answer.verdict != Verdict::kFailed), "who fails says why");
    if (!job.status.ok() || job.reply == nullptr || job.call.kind == CallKind::kMap) return;
    const bool is_whole = job.call.kind == CallKind::kSnapshot;
    const size_t count = is_whole ? snapshot_floats(job.call, server_->state_vectors()) : job.call.count;
    const std::vector<float> read(job.reply, job.reply + count);
    require(read.size() == count, "all of an answer can be read");
  }

  void check_memory() const {
    std::vector<Holding> all;
    for (const Extent& extent : kExtents) all.push_back({extent.count, true, true});
    const uint64_t most = bytes_needed(options_, kExtents[0].count, all, kWorkers);
    require(server_->stats().bytes <= most, "a server needs no more than it says");
  }

  Reader& reader_;
  std::string mode_;
  ServerOptions options_;
  DoorbellWord bell_;
  std::unique_ptr<Server> server_;
  std::set<int> joined_;
  std::map<Lane, std::unique_ptr<Open>> open_;
};

}  // namespace

void calls_target(Input input) {
  set_log_sink([](LogLevel, const char*) {});
  Reader reader(input);
  World(reader).play();
}

}  // namespace braid::fuzz
