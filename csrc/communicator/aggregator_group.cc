// SPDX-License-Identifier: Apache-2.0
// A group's aggregator group: its ranks and the aggregators, as a second group.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "communicator/checks.h"
#include "communicator/group.h"
#include "links/control_channel.h"
#include "links/tuning.h"

namespace braid {
namespace {

// How long an aggregator group may take to form and to measure its links. At most this part of the group's timeout.
constexpr milliseconds kAggregatorGroupForms{60'000};
constexpr int kAggregatorGroupFormsPart = 4;
// An aggregator group counts as lost if it takes kLateFactor times longer than predicted, and at least this long. A
// dead aggregator is seen sooner. A late rank deserves a long wait.
constexpr double kLateFactor = 20;
constexpr double kLateAfter_s = 120;
// The aggregator group must need at most this part of the time without it. Its time includes the rounds of the vote,
// and a copy of the input.
constexpr double kMostOfTimeWithout = 0.95;
constexpr double kVoteRounds = 4;

}  // namespace

Status Group::form_aggregator_group(int aggregators, const std::string& name) {
  Options options = options_;
  options.algorithm.clear();
  options.aggregators = aggregators;
  options.servers = nullptr;
  options.await_servers = -1;
  const milliseconds limit = timeout();
  options.timeout = limit.count() > 0 ? std::min(kAggregatorGroupForms, limit / kAggregatorGroupFormsPart)
                                      : kAggregatorGroupForms;
  auto made = Communicator::create(engine_, servers_, rank_, ranks_ + aggregators, name, options);
  const std::byte came{made.ok()};
  ControlChannel control(mailbox_, engine_->bell(), "taking in aggregators", deadline_after(limit));
  control.begin(ControlPurpose::kAggregatorGroup);
  const auto told = control.consult(rank_, ranks_, {&came, 1}, [](const ControlChannel::Words& words) {
    return std::all_of(words.begin(), words.end(), [](const auto& word) { return word[0] != std::byte{0}; })
               ? std::string("all")
               : std::string("not all");
  });
  if (!told.ok()) return told.status();
  if (told.value() != "all") {
    if (made.ok()) made.value()->shutdown();
    if (rank_ != 0) return {};
    log(LogLevel::kWarning, "group \"" + name_ + "\" could not take in " +
                                aggregators_text(static_cast<size_t>(aggregators)) + ": " +
                                (made.ok() ? "another rank could not" : made.status().message()));
    discovery_.lost_group(0);
    return {};
  }
  made.value()->set_timeout(limit);
  link_watch_.forget();  // the group's own traffic changes, because the aggregator group takes over a part of it
  aggregated_counters_ = &statistics_.row(name_of(CollectiveKind::kAllReduce),
                                          "direct with " + aggregators_text(static_cast<size_t>(aggregators)));
  const std::lock_guard lock(mutex_);
  aggregator_group_ = std::static_pointer_cast<Group>(std::move(made).value());
  aggregator_count_ = aggregators;
  aggregator_operations_ = 0;
  return {};
}

void Group::shut_down_retired() {
  std::vector<std::shared_ptr<Group>> retired;
  {
    const std::lock_guard lock(mutex_);
    retired = std::exchange(retired_, {});
  }
  for (const auto& group : retired) group->shutdown();
}

std::shared_ptr<Group> Group::aggregator_group() const {
  const std::lock_guard lock(mutex_);
  return aggregator_group_;
}

std::optional<double> Group::predicted_s(DType dtype, ReduceOp op, int64_t bytes) {
  const auto choice = tuner()->choose({CollectiveKind::kAllReduce, ranks_, 0}, dtype, op, bytes);
  if (!choice.ok()) return std::nullopt;
  return choice.value()->predicted_s;
}

bool Group::is_faster_with(Group& group, DType dtype, ReduceOp op, int64_t bytes) {
  if (!options_.algorithm.empty()) return false;  // a forced algorithm is not replaced
  const double extra_s =
      kVoteRounds * tuner()->topology().between_hosts().alpha_s + static_cast<double>(bytes) * kMemory_s_per_byte;
  const auto with = group.predicted_s(dtype, op, bytes);
  const auto without = predicted_s(dtype, op, bytes);
  return with && without && *with + extra_s < kMostOfTimeWithout * *without;
}

std::unique_ptr<AggregatedAllReduce> Group::aggregated_for(const Operation& operation, uint64_t sequence) {
  if (!servers_) return nullptr;        // the usual case: checked first, without a lock
  if (operation.lossy) return nullptr;  // aggregators keep no residuals
  const std::shared_ptr<Group> with = aggregator_group();
  if (!with || operation.kind != CollectiveKind::kAllReduce) return nullptr;
  const int64_t bytes = agreed_bytes(operation);
  if (!is_faster_with(*with, operation.dtype, operation.op, bytes)) return nullptr;
  const double expected_s = with->predicted_s(operation.dtype, operation.op, bytes).value_or(0);
  milliseconds patience(static_cast<int64_t>(1000 * std::max(kLateAfter_s, kLateFactor * expected_s)));
  const milliseconds limit = operation.timeout.count() > 0 ? operation.timeout : timeout();
  if (limit.count() > 0) patience = std::min(patience, limit / 2);
  ++aggregator_operations_;
  return std::make_unique<AggregatedAllReduce>(with, aggregator_count_, mailbox_, rank_, ranks_, sequence,
                                               operation, engine_->pool(), engine_->bell(), patience);
}

void Group::dismiss_aggregator_group(const Status& why, bool parts) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    group = std::exchange(aggregator_group_, nullptr);
    if (group) retired_.push_back(group);
  }
  if (!group) return;
  link_watch_.forget();
  if (rank_ == 0 && !parts) {
    discovery_.lost_group(aggregator_operations_);
    log(LogLevel::kWarning, "group \"" + name_ + "\" goes on without its " +
                                aggregators_text(static_cast<size_t>(aggregator_count_)) + ": " +
                                (why.ok() ? "another rank has lost them" : why.message()));
  }
  group->abort("its ranks go on without aggregators");
}

}  // namespace braid
