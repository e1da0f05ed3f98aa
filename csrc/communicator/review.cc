// SPDX-License-Identifier: Apache-2.0
#include "communicator/review.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "base/log.h"
#include "communicator/checks.h"
#include "communicator/parley.h"

namespace braid {
namespace {

// A review comes before every so many all_reduces of this size and more, if they are so much together.
constexpr size_t kReviewedBytes = 256 * 1024;
constexpr size_t kReviewEvery = 4;
constexpr size_t kReviewEveryBytes = 8 * 1024 * 1024;
constexpr uint64_t kReviewSteps = 1 << 24;  // behind those of a survey
// How long an aggregator that was asked has to answer, and how long a team has to form, links measured and all.
constexpr milliseconds kAnswerWithin{2000};
constexpr milliseconds kTeamForms{60'000};
// How long the first rank waits for aggregators when the group forms.
constexpr milliseconds kAwaitServers{60'000};
constexpr milliseconds kLookAgain{50};
// A team that takes so much longer than predicted, and this long at least, has lost somebody.
constexpr double kPatience = 20;
constexpr double kLeastPatience_s = 30;
// What the vote, and a copy of the input, take besides what is predicted of the team; which must pay.
constexpr double kVoteRounds = 4;
constexpr double kCopy_s_per_byte = 1.5e-10;
constexpr double kWorthIt = 0.95;

// Cards that differ by so much from what they were have changed.
constexpr double kChanged = 0.15;

std::string rates_text(const Topology::Card& card) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g/%.3g", 8e-6 / card.up_s_per_byte, 8e-6 / card.down_s_per_byte);
  return text;
}

// "host 1: 31.9/32.1 instead of 94.8/95.0", by host; empty when none has changed.
std::string changes_text(const Topology& before, const Topology& after) {
  const auto differs = [](double a, double b) { return std::max(a, b) > (1 + kChanged) * std::min(a, b); };
  std::string text;
  for (int host = 0; host < before.host_count(); ++host) {
    const Topology::Card was = before.card(host);
    const Topology::Card is = after.card(host);
    if (!differs(was.up_s_per_byte, is.up_s_per_byte) && !differs(was.down_s_per_byte, is.down_s_per_byte))
      continue;
    text += (text.empty() ? "" : ", ") + ("host " + std::to_string(host)) + ": " + rates_text(is) +
            " instead of " + rates_text(was);
  }
  return text;
}

std::string aggregators_text(int count) {
  return std::to_string(count) + (count == 1 ? " aggregator" : " aggregators");
}

constexpr const char* kNothing = "go on";
constexpr const char* kPart = "part";
constexpr const char* kMeasure = "measure";

}  // namespace

ReviewTask::~ReviewTask() {
  if (thread_.joinable()) thread_.join();
}

Task::Step ReviewTask::advance(bool) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      if (Status bad = group_.review(false); !bad.ok()) group_.mailbox().fail(bad);
      done_.store(true, std::memory_order_release);
      ring(group_.engine().bell());
    });
    return Step::kMoved;
  }
  if (!done_.load(std::memory_order_acquire)) return Step::kIdle;
  thread_.join();
  return Step::kDone;
}

bool Group::is_review_due_locked(const Operation& operation) {
  if (!is_reviewed_ || operation.kind != CollectiveKind::kAllReduce) return false;
  const auto bytes = static_cast<size_t>(agreed_bytes(operation));
  if (bytes < kReviewedBytes) return false;
  ++unreviewed_;
  unreviewed_bytes_ += bytes;
  if (unreviewed_ < kReviewEvery || unreviewed_bytes_ < kReviewEveryBytes) return false;
  unreviewed_ = unreviewed_bytes_ = 0;
  return true;
}

Status Group::review(bool first) {
  Parley parley(mailbox_, engine_->bell(), "reviewing their links", deadline_after(options_.timeout));
  parley.go_to_step(kReviewSteps);
  const SeenRates mine = seen_rates();
  const auto told =
      parley.consult(rank_, ranks_, std::as_bytes(std::span(&mine, 1)), [&](const Parley::Words& words) {
        std::vector<SeenRates> seen(words.size());
        for (size_t rank = 0; rank < words.size(); ++rank)
          std::memcpy(&seen[rank], words[rank].data(), sizeof mine);
        return decide(first, seen);
      });
  if (!told.ok()) return told.status();
  const std::string& verdict = told.value();
  if (verdict == kMeasure) return measure_again();
  if (verdict == kPart) {
    dismiss_team({}, true);
    return {};
  }
  int aggregators = 0;  // "2 world/servers/0123": the group to form
  const auto [rest, error] = std::from_chars(verdict.data(), verdict.data() + verdict.size(), aggregators);
  if (error != std::errc() || aggregators < 1) return {};
  return form_team(aggregators, std::string(rest + 1, verdict.data() + verdict.size()), parley);
}

std::string Group::decide(bool first, const std::vector<SeenRates>& seen) {
  if (!first && (options_.links.empty() || options_.links == "measure")) {
    std::vector<SeenRates> hosts(static_cast<size_t>(tuner()->topology().host_count()));
    for (size_t rank = 0; rank < seen.size(); ++rank) {
      SeenRates& host = hosts[static_cast<size_t>(wires_.hosts[rank])];
      host.up += seen[rank].up;
      host.down += seen[rank].down;
    }
    if (link_watch_.has_drifted(hosts)) return kMeasure;
  }
  return options_.servers ? decide_on_servers(first) : kNothing;
}

SeenRates Group::seen_rates() {
  if (!wires_.tcp) return {};
  const CardRates rates = wires_.tcp->take_rates();
  return {rates.up_bytes_per_s, rates.down_bytes_per_s};
}

Status Group::measure_again() {
  const std::shared_ptr<Tuner> before = tuner();
  dismiss_team({}, true);  // whose links were measured with ours, and will be again
  if (rank_ == 0) engine_->links().forget(wires_.host_names);
  if (Status bad = make_tuner(true); !bad.ok()) return bad;
  static_cast<void>(seen_rates());  // of the measuring, and the plan before
  if (rank_ != 0) return {};
  const std::string changes = changes_text(before->topology(), tuner()->topology());
  log(changes.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      "group \"" + name_ + "\" has measured its links again: " +
          (changes.empty() ? "they are as they were" : changes + " Mbit/s up/down; planned anew"));
  link_watch_.measured_again(!changes.empty());
  return {};
}

std::string Group::decide_on_servers(bool first) {
  std::vector<std::string> tickets = registry_.newcomers();
  const auto awaited = static_cast<size_t>(first ? std::max(options_.await_servers, 0) : 0);
  const Deadline deadline =
      Clock::now() + std::min(kAwaitServers, options_.timeout.count() > 0 ? options_.timeout : kAwaitServers);
  while (tickets.size() < awaited && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLookAgain);
    for (std::string& ticket : registry_.newcomers()) tickets.push_back(std::move(ticket));
  }
  if (tickets.size() < awaited) {
    log(LogLevel::kWarning, "group \"" + name_ + "\": only " + std::to_string(tickets.size()) + " of " +
                                aggregators_text(static_cast<int>(awaited)) +
                                " have come; going on without the others");
  }
  waiting_.insert(waiting_.end(), tickets.begin(), tickets.end());
  if (waiting_.empty()) return kNothing;
  // Those who are in a team come back for a larger one.
  if (team()) return kPart;
  const auto willing = registry_.ask(std::exchange(waiting_, {}), Clock::now() + kAnswerWithin);
  if (willing.empty()) return kNothing;
  Appointment appointment;
  appointment.group = name_ + "/servers/" + willing[0];
  appointment.ranks = ranks_;
  appointment.chunk_bytes = options_.chunk_bytes;
  appointment.window = options_.window;
  appointment.links = options_.links;
  if (!registry_.appoint(willing, appointment).ok()) return kNothing;
  return std::to_string(willing.size()) + " " + appointment.group;
}

Status Group::form_team(int aggregators, const std::string& name, Parley& parley) {
  Options options = options_;
  options.algorithm.clear();
  options.aggregators = aggregators;
  options.servers = nullptr;
  options.await_servers = -1;
  options.timeout = kTeamForms;
  auto made = Communicator::create(engine_, options_.servers, rank_, ranks_ + aggregators, name, options);
  const std::byte came{made.ok()};
  const auto told = parley.consult(rank_, ranks_, {&came, 1}, [](const Parley::Words& words) {
    return std::all_of(words.begin(), words.end(), [](const auto& word) { return word[0] != std::byte{0}; })
               ? std::string("all")
               : std::string("not all");
  });
  if (!made.ok() && rank_ == 0) {
    log(LogLevel::kWarning,
        "group \"" + name_ + "\" could not take in its aggregators: " + made.status().message());
  }
  if (!told.ok()) return told.status();
  if (told.value() != "all") {
    if (made.ok()) made.value()->shutdown();
    return {};
  }
  made.value()->set_timeout(options_.timeout);
  detour_counters_ =
      &statistics_.row(name_of(CollectiveKind::kAllReduce), "direct with " + aggregators_text(aggregators));
  const std::lock_guard lock(mutex_);
  team_ = std::static_pointer_cast<Group>(std::move(made).value());
  team_aggregators_ = aggregators;
  return {};
}

std::shared_ptr<Group> Group::team() const {
  const std::lock_guard lock(mutex_);
  return team_;
}

double Group::predicted_s(DType dtype, ReduceOp op, int64_t bytes) {
  const auto choice = tuner()->choose({CollectiveKind::kAllReduce, ranks_, 0}, dtype, op, bytes);
  return choice.ok() ? choice.value()->predicted_s : 0;
}

bool Group::is_faster_with(Group& team, DType dtype, ReduceOp op, int64_t bytes) {
  if (!options_.algorithm.empty()) return false;  // what was forced is not replaced
  const double extra_s =
      kVoteRounds * tuner()->topology().between_hosts().alpha_s + static_cast<double>(bytes) * kCopy_s_per_byte;
  return team.predicted_s(dtype, op, bytes) + extra_s < kWorthIt * predicted_s(dtype, op, bytes);
}

std::unique_ptr<Detour> Group::detour_for(const Operation& operation, uint64_t sequence) {
  const std::shared_ptr<Group> with = team();
  if (!with || operation.kind != CollectiveKind::kAllReduce) return nullptr;
  const int64_t bytes = agreed_bytes(operation);
  if (!is_faster_with(*with, operation.dtype, operation.op, bytes)) return nullptr;
  const double expected_s = with->predicted_s(operation.dtype, operation.op, bytes);
  milliseconds patience(static_cast<int64_t>(1000 * std::max(kLeastPatience_s, kPatience * expected_s)));
  const milliseconds limit = operation.timeout.count() > 0 ? operation.timeout : options_.timeout;
  if (limit.count() > 0) patience = std::min(patience, limit / 2);
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
  if (rank_ == 0 && !parts) {
    log(LogLevel::kWarning, "group \"" + name_ + "\" goes on without its " + aggregators_text(team_aggregators_) +
                                ": " + (why.ok() ? "another rank has lost them" : why.message()));
  }
  team->abort("its ranks go on without aggregators");
}

}  // namespace braid
