// SPDX-License-Identifier: Apache-2.0
#include "aggregator/aggregator_group.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "communicator/checks.h"
#include "links/control_channel.h"
#include "links/tuning.h"
#include "rendezvous/store_until.h"

namespace braid {
namespace {

// How long the first rank waits for aggregators when the group of the ranks forms. At most this part of the
// group's timeout: the other ranks wait no longer.
constexpr milliseconds kAwaitServers{60'000};
constexpr int kAwaitServersPart = 2;
// How long an aggregator group may take to form and to measure its links. At most this part of the group's timeout.
constexpr milliseconds kAggregatorGroupForms{60'000};
constexpr int kAggregatorGroupFormsPart = 4;
// An aggregator group counts as lost if it takes kLateFactor times longer than predicted, and at least this long. A
// dead aggregator is seen sooner. A late rank deserves a long wait.
constexpr double kLateFactor = 20;
constexpr double kLateAfter_s = 120;
// The costs of the vote and of a copy of the input. The aggregator group must be faster with these costs included.
constexpr double kVoteRounds = 4;
constexpr double kMostOfTimeWithout = 0.95;

// Decisions; "2 world/servers/0123" is to form that group, with 2 aggregators.
constexpr const char* kNothing = "go on";
constexpr const char* kPart = "part";
constexpr const char* kGoodbye = "its ranks go on without aggregators";

// `wanted`, but at most this part of the timeout; a timeout of 0 is none.
milliseconds within(milliseconds timeout, int part, milliseconds wanted) {
  return timeout.count() > 0 ? std::min(wanted, timeout / part) : wanted;
}

}  // namespace

AggregatorGroup::AggregatorGroup(const Member& member, Mailbox& mailbox, Statistics& statistics,
                                 const Timeout& timeout, Home home)
    : member_(member),
      mailbox_(mailbox),
      statistics_(statistics),
      timeout_(timeout),
      home_(std::move(home)),
      store_(member.options.servers && member.options.await_servers >= 0
                 ? std::make_shared<StoreUntil>(member.options.servers, [this] { return mailbox_.has_ended(); })
                 : nullptr),
      discovery_(store_) {}

Status AggregatorGroup::await(const GiveUp& give_up) {
  const Deadline until = Clock::now() + within(member_.options.timeout, kAwaitServersPart, kAwaitServers);
  Status bad = discovery_.await(static_cast<size_t>(member_.options.await_servers), until,
                                [&] { return mailbox_.has_ended() || (give_up && give_up()); });
  return bad.ok() ? bad : bad.within("looking for aggregators");
}

std::string AggregatorGroup::decide(bool first) {
  if (!store_) return kNothing;
  const int in_group = group() ? aggregators_ : 0;
  if (in_group > 0) return discovery_.wants_larger_group(static_cast<size_t>(in_group)) ? kPart : kNothing;
  const auto willing = discovery_.discover();
  const auto awaited = static_cast<size_t>(member_.options.await_servers);
  if (first && willing.size() < awaited) {
    log(LogLevel::kWarning, "group \"" + member_.name + "\": " + std::to_string(willing.size()) + " of " +
                                aggregators_text(awaited) + " came; going on without the rest");
  }
  if (willing.empty()) return kNothing;
  Appointment appointment;
  appointment.group = member_.name + "/servers/" + willing[0];
  appointment.ranks = member_.ranks;
  appointment.chunk_bytes = member_.options.chunk_bytes;
  appointment.window = member_.options.window;
  appointment.links = member_.options.links;
  if (!discovery_.appoint(willing, appointment).ok()) return kNothing;
  return std::to_string(willing.size()) + " " + appointment.group;
}

Status AggregatorGroup::follow(const std::string& decision) {
  if (decision == kPart) {
    part();
    return {};
  }
  int aggregators = 0;
  const char* const end = decision.data() + decision.size();
  const auto [rest, error] = std::from_chars(decision.data(), end, aggregators);
  if (error != std::errc()) return {};
  if (aggregators < 1 || aggregators > kMostServers || rest == end) {
    return {Code::kMismatch, "the first rank asks for " + std::to_string(aggregators) +
                                 " aggregators, of at most " + std::to_string(kMostServers)};
  }
  return form(aggregators, std::string(rest + 1, end));
}

Status AggregatorGroup::form(int aggregators, const std::string& name) {
  Options options = member_.options;
  options.algorithm.clear();
  options.aggregators = aggregators;
  options.also_equal.clear();  // aggregators do not have these settings
  options.servers = nullptr;
  options.await_servers = -1;
  const milliseconds limit = timeout_.get();
  options.timeout = within(limit, kAggregatorGroupFormsPart, kAggregatorGroupForms);
  auto made = home_.form(store_, member_.ranks + aggregators, name, options);
  const std::byte came{made.ok()};
  ControlChannel control(mailbox_, member_.engine->bell(), "taking in aggregators", deadline_after(limit));
  control.begin(ControlPurpose::kAggregatorGroup);
  const auto told =
      control.consult(member_.rank, member_.ranks, {&came, 1}, [](const ControlChannel::Words& words) {
        return std::all_of(words.begin(), words.end(), [](const auto& word) { return word[0] != std::byte{0}; })
                   ? std::string("all")
                   : std::string("not all");
      });
  if (!told.ok()) return told.status();
  if (told.value() != "all") {
    if (made.ok()) made.value()->shutdown();
    if (member_.rank != 0) return {};
    log(LogLevel::kWarning, "group \"" + member_.name + "\" could not take in " +
                                aggregators_text(static_cast<size_t>(aggregators)) + ": " +
                                (made.ok() ? "another rank could not" : made.status().message()));
    discovery_.lost_group(0);
    return {};
  }
  made.value()->set_timeout(limit);
  counters_ = &statistics_.row(name_of(CollectiveKind::kAllReduce),
                               "direct with " + aggregators_text(static_cast<size_t>(aggregators)));
  aggregators_ = aggregators;
  operations_ = 0;
  {
    const std::lock_guard lock(mutex_);
    group_ = std::move(made).value();
  }
  home_.changed();
  return {};
}

std::shared_ptr<MeasuredGroup> AggregatorGroup::group() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

bool AggregatorGroup::is_faster_in(MeasuredGroup& group, DType dtype, ReduceOp op, int64_t bytes) {
  if (!member_.options.algorithm.empty()) return false;  // a forced algorithm is not replaced
  const Alone alone = home_.alone(dtype, op, bytes);
  const double extra_s = kVoteRounds * alone.latency_s + static_cast<double>(bytes) * kMemory_s_per_byte;
  const auto with = group.predicted_s(dtype, op, bytes);
  return with && alone.predicted_s && *with + extra_s < kMostOfTimeWithout * *alone.predicted_s;
}

std::shared_ptr<MeasuredGroup> AggregatorGroup::faster_for(DType dtype, ReduceOp op, int64_t bytes) {
  std::shared_ptr<MeasuredGroup> with = group();
  return with && is_faster_in(*with, dtype, op, bytes) ? with : nullptr;
}

std::unique_ptr<AggregatedAllReduce> AggregatorGroup::all_reduce_for(const Operation& operation,
                                                                     uint64_t sequence) {
  if (!store_) return nullptr;          // the usual case: checked first, without a lock
  if (operation.lossy) return nullptr;  // aggregators keep no residuals
  if (operation.kind != CollectiveKind::kAllReduce) return nullptr;
  const int64_t bytes = agreed_bytes(operation);
  const std::shared_ptr<MeasuredGroup> with = faster_for(operation.dtype, operation.op, bytes);
  if (!with) return nullptr;
  const double expected_s = with->predicted_s(operation.dtype, operation.op, bytes).value_or(0);
  milliseconds patience(static_cast<int64_t>(1000 * std::max(kLateAfter_s, kLateFactor * expected_s)));
  const milliseconds limit = timeout_.of(operation.timeout);
  if (limit.count() > 0) patience = std::min(patience, limit / 2);
  ++operations_;
  return std::make_unique<AggregatedAllReduce>(with, aggregators_, mailbox_, member_.rank, member_.ranks, sequence,
                                               operation, member_.engine->pool(), member_.engine->bell(),
                                               patience);
}

std::shared_ptr<MeasuredGroup> AggregatorGroup::take() {
  std::shared_ptr<MeasuredGroup> group;
  {
    const std::lock_guard lock(mutex_);
    group = std::exchange(group_, nullptr);
    if (group) ended_.push_back(group);
  }
  if (group) home_.changed();
  return group;
}

void AggregatorGroup::part() {
  if (const auto group = take()) group->abort(kGoodbye);
}

void AggregatorGroup::lose(const Status& why) {
  const auto group = take();
  if (!group) return;
  if (member_.rank == 0) {
    discovery_.lost_group(operations_);
    log(LogLevel::kWarning, "group \"" + member_.name + "\" goes on without its " +
                                aggregators_text(static_cast<size_t>(aggregators_)) + ": " +
                                (why.ok() ? "another rank has lost them" : why.message()));
  }
  group->abort(kGoodbye);
}

void AggregatorGroup::abort(const std::string& reason) {
  if (const auto with = group()) with->abort(reason);
}

void AggregatorGroup::shutdown(const GiveUp& give_up) {
  if (const auto with = group()) with->shutdown(give_up);
  shut_down_ended();
}

void AggregatorGroup::shut_down_ended() {
  std::vector<std::shared_ptr<MeasuredGroup>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, {});
  }
  for (const auto& group : ended) group->shutdown();
}

}  // namespace braid
