// SPDX-License-Identifier: Apache-2.0
// The system refuses one thing after another while ranks form a group, use it and leave. Each time every rank ends soon,
// with success or with an error that says what was refused; nobody hangs, the process lives, and the same engines, whose
// threads must be alive, then carry a fresh group.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "communicator/communicator.h"
#include "communicator/ranks.h"
#include "injection/faults.h"
#include "injection/outcome.h"
#include "support/slowness.h"

namespace braid::testing {
namespace {

enum class Phase { kForm, kCollect, kSend, kLeave };
constexpr Phase kPhases[] = {Phase::kForm, Phase::kCollect, Phase::kSend, Phase::kLeave};
const char* const kPhaseNames[] = {"forming", "collectives", "messages", "leaving"};

const milliseconds kTimeout = limit(milliseconds(20'000));  // of the groups; nobody may ever need it
const milliseconds kSoon = limit(milliseconds(10'000));     // within which an attempt is over, on a busy machine

// The store of the rendezvous. When one has given up, as when its launcher sees it end, the others need not wait for it.
class RendezvousStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return {};
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return given_up_ || values_.contains(key); });
    if (given_up_) return Status(Code::kAborted, "another rank gave up");
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    return Status(Code::kTimeout, "no key " + key);
  }
  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool given_up_ = false;
};

struct Setting {
  const char* name;
  const char* transports;
  int ranks;
  bool single_copy;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

Options options_for(const Setting& setting, int rank) {
  Options options;
  options.timeout = kTimeout;
  options.transports = setting.transports;
  options.interface = "127.0.0.1";
  options.links = "assume";
  options.single_copy = setting.single_copy;
  if (std::string(setting.transports) == "tcp") options.host = "host " + std::to_string(rank);
  return options;
}

Status wrong(const char* what) { return {Code::kInternal, std::string("WRONG RESULT: ") + what}; }

Operation sum_of(std::vector<float>& values) {
  const Bytes bytes = std::as_writable_bytes(std::span(values));
  return {CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, {bytes}, {bytes}};
}

// What operations use. It outlives them, also where memory for the next operation is refused while one is in flight.
class Memory {
 public:
  std::vector<float>& floats(size_t count, float value) { return floats_.emplace_back(count, value); }
  std::vector<std::byte>& bytes(size_t count, std::byte value) { return bytes_.emplace_back(count, value); }

 private:
  std::list<std::vector<float>> floats_;
  std::list<std::vector<std::byte>> bytes_;
};

bool is_sum(const std::vector<float>& values, int ranks) {
  return std::all_of(values.begin(), values.end(),
                     [&](float value) { return value == ranks * (ranks + 1) / 2.0f; });
}

// Small ones as a caller who waits runs them, so that the third runs a prepared operation; a large one in the background; lossy.
Status collect(Communicator& group, Memory& memory) {
  const auto mine = static_cast<float>(group.rank() + 1);
  for (const size_t count : {16, 16, 16, 5000}) {
    std::vector<float>& values = memory.floats(count, mine);
    if (Status bad = outcome(group.run(sum_of(values))); !bad.ok()) return bad;
    if (!is_sum(values, group.ranks())) return wrong("small sum");
  }
  auto &first = memory.floats(1 << 16, mine), &second = memory.floats(300, mine);
  auto& third = memory.floats(1 << 15, mine);
  const auto large = group.start(sum_of(first), false);
  const auto next = group.start(sum_of(second), false);
  const Status ended = outcome(large), next_ended = outcome(next);
  if (!ended.ok()) return ended;
  if (!next_ended.ok()) return next_ended;
  if (!is_sum(first, group.ranks()) || !is_sum(second, group.ranks())) return wrong("large sum");
  Operation lossy = sum_of(third);
  lossy.lossy = Lossy{codec_from_text("bf16").value(), nullptr, 3};
  if (Status bad = outcome(group.start(std::move(lossy), true)); !bad.ok()) return bad;
  if (!is_sum(third, group.ranks())) return wrong("lossy sum");
  return outcome(group.start({CollectiveKind::kBarrier}, true));
}

// Around the ring, small and large, and one from whoever sends first.
Status send(Communicator& group, Memory& memory) {
  const Node to = (group.rank() + 1) % group.ranks(), from = (group.rank() + group.ranks() - 1) % group.ranks();
  for (const size_t bytes : {100, 200'000}) {
    auto &out = memory.bytes(bytes, std::byte(group.rank())), &in = memory.bytes(bytes, {});
    const auto received = group.recv(bytes == 100 ? kAnyNode : from, 1, in, kTimeout);
    const auto sent = group.send(to, 1, out, kTimeout);
    const Status in_ended = outcome(received), out_ended = outcome(sent);
    if (!in_ended.ok()) return in_ended;
    if (!out_ended.ok()) return out_ended;
    if (in.back() != std::byte(from)) return wrong("message");
  }
  return {};
}

// What is refused: the n-th request, or the first from a place.
struct Refusal {
  uint64_t number = 0;
  Site site = 0;
  bool none() const { return number == 0 && site == 0; }
};

struct Attempt {
  Fault fault;
  Phase phase;
  Refusal refusal;  // none: places are noted
  uint64_t count = 1;
  uint64_t seen = 0;               // requests in that phase
  std::vector<Status> outcomes;    // by rank, of that phase; the first that was not ok
  std::vector<Status> afterwards;  // of a fresh group
};

class Rank {
 public:
  Rank(const Setting& setting, Node rank, std::shared_ptr<Engine> engine)
      : setting_(setting), rank_(rank), engine_(std::move(engine)) {}

  Status form(const std::shared_ptr<Store>& store, const char* name) {
    auto made = Communicator::create(engine_, store, rank_, setting_.ranks, name, options_for(setting_, rank_));
    if (made.ok()) group_ = made.value();
    return made.status();
  }
  Status play(Phase phase, const std::shared_ptr<Store>& store, const char* name) {
    switch (phase) {
      case Phase::kForm: return form(store, name);
      case Phase::kCollect: return collect(*group_, memory_);
      case Phase::kSend: return send(*group_, memory_);
      case Phase::kLeave: break;
    }
    group_->shutdown();
    group_.reset();
    return {};
  }
  void give_up(RendezvousStore& store) {
    store.give_up();
    if (group_) testing::give_up(*group_);
  }
  bool has_group() const { return group_ != nullptr; }

 private:
  const Setting& setting_;
  const Node rank_;
  Memory memory_;
  const std::shared_ptr<Engine> engine_;
  std::shared_ptr<Communicator> group_;
};

void run(const Setting& setting, Attempt& attempt) {
  const auto n = static_cast<size_t>(setting.ranks);
  const auto store = std::make_shared<RendezvousStore>(), fresh = std::make_shared<RendezvousStore>();
  attempt.outcomes.assign(n, {});
  attempt.afterwards.assign(n, {});
  std::vector<Rank> ranks;
  for (Node rank = 0; rank < setting.ranks; ++rank) {
    ranks.emplace_back(setting, rank, Engine::create(options_for(setting, rank)).value());
  }
  std::atomic<bool> failed{false};
  std::barrier gate(setting.ranks);
  const auto body = [&](Node node) {
    Rank& rank = ranks[static_cast<size_t>(node)];
    Status& seen = attempt.outcomes[static_cast<size_t>(node)];
    for (const Phase phase : kPhases) {
      gate.arrive_and_wait();
      if (node == 0 && phase == attempt.phase) {
        if (attempt.refusal.none()) note_sites(attempt.fault);
        if (attempt.refusal.number != 0) arm(attempt.fault, attempt.refusal.number, attempt.count);
        if (attempt.refusal.site != 0) arm_at(attempt.fault, attempt.refusal.site, attempt.count);
      }
      gate.arrive_and_wait();
      if (rank.has_group() == (phase != Phase::kForm) && (seen.ok() || phase == Phase::kLeave)) {
        const Status ended = as_seen_by_user([&] { return rank.play(phase, store, "group"); });
        if (!ended.ok()) {
          failed = true;
          rank.give_up(*store);
          if (seen.ok()) seen = ended;
        }
      }
      gate.arrive_and_wait();
      if (node == 0 && phase == attempt.phase) attempt.seen = disarm();
      gate.arrive_and_wait();
      // As a launcher would: who could form the group is told that another could not.
      if (phase == Phase::kForm && failed && rank.has_group()) rank.give_up(*store);
    }
    gate.arrive_and_wait();
    Status& after = attempt.afterwards[static_cast<size_t>(node)];
    for (const Phase phase : kPhases) {
      if (after.ok()) after = as_seen_by_user([&] { return rank.play(phase, fresh, "fresh"); });
    }
    if (!after.ok()) rank.give_up(*fresh);
  };
  std::vector<std::thread> threads;
  for (Node node = 0; node < setting.ranks; ++node) threads.emplace_back(body, node);
  for (std::thread& thread : threads) thread.join();
}

constexpr size_t kAttempts = 20;  // of a phase, unless every place is tried
constexpr size_t kFew = 60;       // requests that are refused one by one

class Injection : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    set_log_sink([](LogLevel, const char*) {});  // each refusal is logged
    if (tries_every_place()) ::alarm(0);         // the watchdog has not that much patience
  }
  void TearDown() override { set_log_sink(nullptr); }

  // Returns how many requests there were.
  uint64_t try_one(Fault fault, Phase phase, Refusal refusal, uint64_t count) {
    Attempt attempt{fault, phase, refusal, count};
    const auto begun = Clock::now();
    run(GetParam(), attempt);
    std::string where = std::string(kPhaseNames[static_cast<int>(phase)]) + ", refusal of request " +
                        std::to_string(refusal.number) + " or at place " + std::to_string(refusal.site);
    for (const Status& ended : attempt.outcomes) where += "\n  " + (ended.ok() ? "ok" : ended.message());
    EXPECT_LT(Clock::now() - begun, kSoon) << where;
    bool failed = false, named = false;
    for (const Status& ended : attempt.outcomes) {
      if (ended.ok()) continue;
      failed = true;
      named |= names_cause(fault, ended.message());
      EXPECT_NE(ended.code(), Code::kTimeout) << where;
      EXPECT_EQ(ended.message().find("WRONG"), std::string::npos) << where;
    }
    if (refusal.none()) {
      EXPECT_FALSE(failed) << where;
    }
    EXPECT_TRUE(named || !failed) << "nobody names the cause: " << where;
    for (const Status& ended : attempt.afterwards) {
      EXPECT_TRUE(ended.ok()) << where << ", a fresh group: " << ended.message();
    }
    return attempt.seen;
  }

  // Few requests are refused one by one, many by the place they come from.
  void try_all(Fault fault, uint64_t count) {
    for (const Phase phase : kPhases) {
      const uint64_t requests = try_one(fault, phase, {}, 0);
      std::vector<Refusal> refusals;
      for (uint64_t number = 1; requests <= kFew && number <= requests; ++number) refusals.push_back({number, 0});
      if (refusals.empty()) {
        for (const Site site : noted_sites()) refusals.push_back({0, site});
      }
      const size_t step = tries_every_place() || refusals.size() <= kFew ? 1 : refusals.size() / kAttempts;
      size_t tried = 0;
      for (size_t i = 0; i < refusals.size(); i += step, ++tried) {
        try_one(fault, phase, refusals[i], count);
        ASSERT_FALSE(HasFailure()) << "stopped";
      }
      std::printf("  %s: %lu requests, %zu of %zu refused\n", kPhaseNames[static_cast<int>(phase)], requests,
                  tried, refusals.size());
    }
  }
};

TEST_P(Injection, MemoryIsRefusedOnce) { try_all(Fault::kMemory, 1); }
TEST_P(Injection, MemoryIsRefusedForAWhile) { try_all(Fault::kMemory, 40); }
TEST_P(Injection, DescriptorsAreRefused) { try_all(Fault::kDescriptor, 1); }
TEST_P(Injection, ThreadsAreRefused) { try_all(Fault::kThread, 1); }

INSTANTIATE_TEST_SUITE_P(Wires, Injection,
                         ::testing::Values(Setting{"boards", "shm", 3, true}, Setting{"tcp", "tcp", 2, true},
                                           Setting{"tcp_of_three", "tcp", 3, true}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace braid::testing
