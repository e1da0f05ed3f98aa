// SPDX-License-Identifier: Apache-2.0
#include "communicator/replan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "communicator/checks.h"
#include "links/control_channel.h"

namespace braid {
namespace {

// A replan is due after kReplanEvery all_reduces of at least kReplanCountsBytes, if they have kReplanEveryBytes
// together.
constexpr size_t kReplanCountsBytes = 256 * 1024;
constexpr size_t kReplanEvery = 4;
constexpr size_t kReplanEveryBytes = 8 * 1024 * 1024;
// How long the first rank waits for aggregators when the group forms. At most this part of the group's timeout:
// the other ranks wait no longer.
constexpr milliseconds kAwaitServers{60'000};
constexpr int kAwaitServersPart = 2;

// A NIC has changed if its rate differs by more than this part.
constexpr double kChanged = 0.15;

std::string rates_text(const Topology::Nic& nic) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g/%.3g", 8e-6 / nic.up_s_per_byte, 8e-6 / nic.down_s_per_byte);
  return text;
}

// The hosts that have changed: "host 1: 31.9/32.1 instead of 94.8/95.0"; empty if none has.
std::string changes_text(const Topology& before, const Topology& after) {
  const auto differs = [](double a, double b) { return std::max(a, b) > (1 + kChanged) * std::min(a, b); };
  std::string text;
  for (int host = 0; host < before.host_count(); ++host) {
    const Topology::Nic was = before.nic(host);
    const Topology::Nic is = after.nic(host);
    if (!differs(was.up_s_per_byte, is.up_s_per_byte) && !differs(was.down_s_per_byte, is.down_s_per_byte))
      continue;
    text += (text.empty() ? "" : ", ") + ("host " + std::to_string(host)) + ": " + rates_text(is) +
            " instead of " + rates_text(was);
  }
  return text;
}

// The rates that each host has passed. 0 if one of its ranks has not seen enough traffic.
std::vector<SeenRates> by_host(const std::vector<int>& hosts, const std::vector<SeenRates>& of_ranks) {
  std::vector<SeenRates> seen(static_cast<size_t>(*std::max_element(hosts.begin(), hosts.end())) + 1);
  std::vector<bool> is_first(seen.size(), true);
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto host = static_cast<size_t>(hosts[rank]);
    const auto add = [first = is_first[host]](double& sum, double part) {
      sum = part > 0 && (first || sum > 0) ? sum + part : 0;
    };
    add(seen[host].up, of_ranks[rank].up);
    add(seen[host].down, of_ranks[rank].down);
    is_first[host] = false;
  }
  return seen;
}

// The rates of the busiest rank of each host. Ranks count at different times, so the sum over ranks may be more
// than their NIC can pass. The rate of one rank never is.
std::vector<SeenRates> fastest_by_host(const std::vector<int>& hosts, const std::vector<SeenRates>& of_ranks) {
  std::vector<SeenRates> fastest(static_cast<size_t>(*std::max_element(hosts.begin(), hosts.end())) + 1);
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    SeenRates& host = fastest[static_cast<size_t>(hosts[rank])];
    host = {std::max(host.up, of_ranks[rank].up), std::max(host.down, of_ranks[rank].down)};
  }
  return fastest;
}

// The measured rates of the hosts. Infinite unless `only_one_works`: with an aggregator group, a rank counts the
// bytes of both groups.
std::vector<SeenRates> rates_of(const Topology& topology, bool only_one_works) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  std::vector<SeenRates> rates;
  for (int host = 0; host < topology.host_count(); ++host) {
    const Topology::Nic nic = topology.nic(host);
    rates.push_back({only_one_works && nic.up_s_per_byte > 0 ? 1 / nic.up_s_per_byte : kAny,
                     only_one_works && nic.down_s_per_byte > 0 ? 1 / nic.down_s_per_byte : kAny});
  }
  return rates;
}

constexpr const char* kNothing = "go on";
constexpr const char* kPart = "part";
constexpr const char* kMeasure = "measure";

}  // namespace

ReplanTask::~ReplanTask() {
  if (thread_.joinable()) thread_.join();
}

Task::Step ReplanTask::advance(bool) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      Status bad;
      const Status thrown = caught("replanning", [&] { bad = group_.replan(false, deadline_); });
      if (!thrown.ok()) group_.mailbox().fail_here(thrown);
      if (!bad.ok()) group_.mailbox().fail(bad);
      done_.store(true, std::memory_order_release);
      ring(group_.engine().bell());
    });
    return Step::kMoved;
  }
  if (!done_.load(std::memory_order_acquire)) return Step::kAfar;
  thread_.join();
  return Step::kDone;
}

bool ReplanTask::fail(const Status& why) {  // for example, the thread could not start
  group_.mailbox().fail_here(why);
  return true;
}

// Whether a replan is due depends only on earlier operations, on which the ranks have agreed. So all ranks replan
// before the same operation. If they disagree on that operation itself, it reports the error.
bool Group::is_replan_due_locked(const Operation& operation) {
  if (!may_replan_) return false;
  const bool due = std::exchange(replan_due_, false);
  const auto bytes = static_cast<size_t>(agreed_bytes(operation));
  if (operation.kind == CollectiveKind::kAllReduce && bytes >= kReplanCountsBytes) {
    ++since_replan_;
    bytes_since_replan_ += bytes;
    replan_due_ = since_replan_ >= kReplanEvery && bytes_since_replan_ >= kReplanEveryBytes;
    if (replan_due_) since_replan_ = bytes_since_replan_ = 0;
  }
  return due;
}

Status Group::replan(bool first, Deadline deadline) {
  shut_down_retired();
  if (first && rank_ == 0) {
    const milliseconds limit = options_.timeout / kAwaitServersPart;
    const Deadline until = Clock::now() + (limit.count() > 0 ? std::min(kAwaitServers, limit) : kAwaitServers);
    Status bad = discovery_.await(static_cast<size_t>(options_.await_servers), until,
                                  [this] { return mailbox_.has_ended() || (give_up_ && give_up_()); });
    if (!bad.ok()) return bad.within("looking for aggregators");
  }
  ControlChannel control(mailbox_, engine_->bell(), "replanning", deadline, give_up_);
  control.begin(ControlPurpose::kReplan);
  const SeenRates mine = seen_rates();
  const auto told =
      control.consult(rank_, ranks_, std::as_bytes(std::span(&mine, 1)), [&](const ControlChannel::Words& words) {
        std::vector<SeenRates> seen(words.size());
        for (size_t rank = 0; rank < words.size(); ++rank)
          std::memcpy(&seen[rank], words[rank].data(), sizeof mine);
        return decide(first, seen);
      });
  if (!told.ok()) return told.status();
  const std::string& verdict = told.value();
  if (verdict == kMeasure) return measure_again(deadline);
  if (verdict == kPart) {
    dismiss_aggregator_group({}, true);
    return {};
  }
  int aggregators = 0;  // "2 world/servers/0123": the group to form
  const auto [rest, error] = std::from_chars(verdict.data(), verdict.data() + verdict.size(), aggregators);
  if (error != std::errc()) return {};
  if (aggregators < 1 || aggregators > kMostServers || rest == verdict.data() + verdict.size()) {
    return {Code::kMismatch, "the first rank asks for " + std::to_string(aggregators) +
                                 " aggregators, of at most " + std::to_string(kMostServers)};
  }
  return form_aggregator_group(aggregators, std::string(rest + 1, verdict.data() + verdict.size()));
}

std::string Group::decide(bool first, const std::vector<SeenRates>& seen) {
  const bool may_change = options_.links.empty() || options_.links == "measure";
  if (!first && may_change) {
    const std::vector<SeenRates> can = rates_of(tuner()->topology(), aggregator_group() == nullptr);
    const auto fastest = fastest_by_host(wires_.hosts, seen);
    if (link_watch_.has_drifted(by_host(wires_.hosts, seen), can, fastest)) return kMeasure;
  }
  return servers_ ? decide_on_servers(first) : kNothing;
}

// The rates of the group's own connections and of its aggregator group's.
SeenRates Group::seen_rates() {
  const NicRates rates = wires_.take_rates();
  SeenRates seen{rates.up_bytes_per_s, rates.down_bytes_per_s};
  if (const auto with_aggregators = aggregator_group()) {
    const SeenRates more = with_aggregators->seen_rates();
    seen = {seen.up + more.up, seen.down + more.down};
  }
  return seen;
}

Status Group::measure_again(Deadline deadline) {
  const std::shared_ptr<Tuner> before = tuner();
  dismiss_aggregator_group({}, true);  // its links will be measured again, together with ours
  engine_->links().forget(
      wires_.host_addresses);  // on all ranks: a rank that remembers old links would store them
  if (Status bad = make_tuner(true, deadline); !bad.ok()) return bad;
  static_cast<void>(seen_rates());  // drops the rates of the benchmark and of the plan before
  if (rank_ != 0) return {};
  const std::string changes = changes_text(before->topology(), tuner()->topology());
  log(changes.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      "group \"" + name_ + "\" has measured its links again: " +
          (changes.empty() ? "they are as they were" : changes + " Mbit/s up/down; planned anew"));
  link_watch_.measured_again(!changes.empty());
  return {};
}

std::string Group::decide_on_servers(bool first) {
  const int in_group = aggregator_group() ? aggregator_count_ : 0;
  if (in_group > 0) return discovery_.wants_larger_group(static_cast<size_t>(in_group)) ? kPart : kNothing;
  const auto willing = discovery_.discover();
  if (first && willing.size() < static_cast<size_t>(options_.await_servers)) {
    log(LogLevel::kWarning, "group \"" + name_ + "\": " + std::to_string(willing.size()) + " of " +
                                aggregators_text(static_cast<size_t>(options_.await_servers)) +
                                " came; going on without the rest");
  }
  if (willing.empty()) return kNothing;
  Appointment appointment;
  appointment.group = name_ + "/servers/" + willing[0];
  appointment.ranks = ranks_;
  appointment.chunk_bytes = options_.chunk_bytes;
  appointment.window = options_.window;
  appointment.links = options_.links;
  if (!discovery_.appoint(willing, appointment).ok()) return kNothing;
  return std::to_string(willing.size()) + " " + appointment.group;
}

}  // namespace braid
