// SPDX-License-Identifier: Apache-2.0
// A group's team: itself and aggregators, as a group of its own.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "communicator/checks.h"
#include "communicator/group.h"
#include "links/control_channel.h"

namespace braid {
namespace {

// How long a team has to form, links measured and all; and a part of the group's timeout at most.
constexpr milliseconds kTeamForms{60'000};
constexpr int kTeamFormsPart = 4;
// A team that takes so much longer than predicted, and this long at least, has lost somebody. One that has died is
// seen before; ranks that are late should be waited for.
constexpr double kPatience = 20;
constexpr double kLeastPatience_s = 120;
constexpr uint64_t kTeamSteps = 1 << 25;  // behind those of a replan
// What the vote, and a copy of the input, take besides what is predicted of the team; which must pay.
constexpr double kVoteRounds = 4;
constexpr double kCopy_s_per_byte = 1.5e-10;
constexpr double kWorthIt = 0.95;

}  // namespace

Status Group::form_team(int aggregators, const std::string& name) {
  Options options = options_;
  options.algorithm.clear();
  options.aggregators = aggregators;
  options.servers = nullptr;
  options.await_servers = -1;
  const milliseconds limit = timeout();
  options.timeout = limit.count() > 0 ? std::min(kTeamForms, limit / kTeamFormsPart) : kTeamForms;
  auto made = Communicator::create(engine_, servers_, rank_, ranks_ + aggregators, name, options);
  const std::byte came{made.ok()};
  ControlChannel control(mailbox_, engine_->bell(), "taking in aggregators", deadline_after(limit));
  control.go_to_step(kTeamSteps);
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
    recruiter_.lost_team(0);
    return {};
  }
  made.value()->set_timeout(limit);
  link_watch_.forget();  // what the group's own NICs pass changes with what the team takes over
  detour_counters_ = &statistics_.row(name_of(CollectiveKind::kAllReduce),
                                      "direct with " + aggregators_text(static_cast<size_t>(aggregators)));
  const std::lock_guard lock(mutex_);
  team_ = std::static_pointer_cast<Group>(std::move(made).value());
  team_aggregators_ = aggregators;
  team_operations_ = 0;
  return {};
}

void Group::shut_down_retired() {
  std::vector<std::shared_ptr<Group>> retired;
  {
    const std::lock_guard lock(mutex_);
    retired = std::exchange(retired_, {});
  }
  for (const auto& team : retired) team->shutdown();
}

std::shared_ptr<Group> Group::team() const {
  const std::lock_guard lock(mutex_);
  return team_;
}

std::optional<double> Group::predicted_s(DType dtype, ReduceOp op, int64_t bytes) {
  const auto choice = tuner()->choose({CollectiveKind::kAllReduce, ranks_, 0}, dtype, op, bytes);
  if (!choice.ok()) return std::nullopt;
  return choice.value()->predicted_s;
}

bool Group::is_faster_with(Group& team, DType dtype, ReduceOp op, int64_t bytes) {
  if (!options_.algorithm.empty()) return false;  // what was forced is not replaced
  const double extra_s =
      kVoteRounds * tuner()->topology().between_hosts().alpha_s + static_cast<double>(bytes) * kCopy_s_per_byte;
  const auto with = team.predicted_s(dtype, op, bytes);
  const auto without = predicted_s(dtype, op, bytes);
  return with && without && *with + extra_s < kWorthIt * *without;
}

std::unique_ptr<Detour> Group::detour_for(const Operation& operation, uint64_t sequence) {
  if (!servers_) return nullptr;        // as for nearly all groups: no lock is taken
  if (operation.lossy) return nullptr;  // aggregators keep no residuals
  const std::shared_ptr<Group> with = team();
  if (!with || operation.kind != CollectiveKind::kAllReduce) return nullptr;
  const int64_t bytes = agreed_bytes(operation);
  if (!is_faster_with(*with, operation.dtype, operation.op, bytes)) return nullptr;
  const double expected_s = with->predicted_s(operation.dtype, operation.op, bytes).value_or(0);
  milliseconds patience(static_cast<int64_t>(1000 * std::max(kLeastPatience_s, kPatience * expected_s)));
  const milliseconds limit = operation.timeout.count() > 0 ? operation.timeout : timeout();
  if (limit.count() > 0) patience = std::min(patience, limit / 2);
  ++team_operations_;
  return std::make_unique<Detour>(with, team_aggregators_, mailbox_, rank_, ranks_, sequence, operation,
                                  engine_->pool(), engine_->bell(), patience);
}

void Group::dismiss_team(const Status& why, bool parts) {
  std::shared_ptr<Group> team;
  {
    const std::lock_guard lock(mutex_);
    team = std::exchange(team_, nullptr);
    if (team) retired_.push_back(team);
  }
  if (!team) return;
  link_watch_.forget();
  if (rank_ == 0 && !parts) {
    recruiter_.lost_team(team_operations_);
    log(LogLevel::kWarning, "group \"" + name_ + "\" goes on without its " +
                                aggregators_text(static_cast<size_t>(team_aggregators_)) + ": " +
                                (why.ok() ? "another rank has lost them" : why.message()));
  }
  team->abort("its ranks go on without aggregators");
}

}  // namespace braid
