// SPDX-License-Identifier: Apache-2.0
#include "group/replan.h"

#include <algorithm>
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

constexpr const char* kMeasure = "measure";  // a decision; the others are those of the aggregator group

}  // namespace

ReplanTask::~ReplanTask() {
  if (thread_.joinable()) thread_.join();
}

Task::Step ReplanTask::advance(bool) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      Status bad;
      const Status thrown = caught("replanning", [&] { bad = replanner_.replan(deadline_); });
      if (!thrown.ok()) mailbox_.fail_here(thrown);
      if (!bad.ok()) mailbox_.fail(bad);
      done_.store(true, std::memory_order_release);
      ring(bell_);
    });
    return Step::kMoved;
  }
  if (!done_.load(std::memory_order_acquire)) return Step::kAfar;
  thread_.join();
  return Step::kDone;
}

bool ReplanTask::fail(const Status& why) {  // for example, the thread could not start
  mailbox_.fail_here(why);
  return true;
}

Status Replanner::begin(const GiveUp& give_up) {
  may_replan_ = choice_.is_on_several_hosts() && member_.options.aggregators == 0 &&
                (links_may_change() || aggregators_.may_form());
  static_cast<void>(seen_rates());  // drops the rates of the link benchmark
  if (!aggregators_.may_form()) return {};
  if (may_replan_) return replan(true, deadline_after(member_.options.timeout), give_up);
  if (member_.rank == 0) {
    log(LogLevel::kWarning, "group \"" + member_.name + "\" is on one host: aggregators are of no use to it");
  }
  return {};
}

// Whether a replan is due depends only on earlier operations, on which the ranks have agreed. So all ranks replan
// before the same operation. If they disagree on that operation itself, it reports the error.
bool Replanner::is_due(const Operation& operation) {
  if (!may_replan_) return false;
  const bool due = std::exchange(is_due_, false);
  const auto bytes = static_cast<size_t>(agreed_bytes(operation));
  if (operation.kind == CollectiveKind::kAllReduce && bytes >= kReplanCountsBytes) {
    ++since_replan_;
    bytes_since_replan_ += bytes;
    is_due_ = since_replan_ >= kReplanEvery && bytes_since_replan_ >= kReplanEveryBytes;
    if (is_due_) since_replan_ = bytes_since_replan_ = 0;
  }
  return due;
}

Status Replanner::replan(bool first, Deadline deadline, const GiveUp& give_up) {
  aggregators_.shut_down_ended();
  if (first && member_.rank == 0) {
    if (Status bad = aggregators_.await(give_up); !bad.ok()) return bad;
  }
  ControlChannel control(mailbox_, member_.engine->bell(), "replanning", deadline, give_up);
  control.begin(ControlPurpose::kReplan);
  const SeenRates mine = seen_rates();
  const auto told = control.consult(member_.rank, member_.ranks, std::as_bytes(std::span(&mine, 1)),
                                    [&](const ControlChannel::Words& words) {
                                      std::vector<SeenRates> seen(words.size());
                                      for (size_t rank = 0; rank < words.size(); ++rank)
                                        std::memcpy(&seen[rank], words[rank].data(), sizeof mine);
                                      return decide(first, seen);
                                    });
  if (!told.ok()) return told.status();
  return told.value() == kMeasure ? measure_again(deadline) : aggregators_.follow(told.value());
}

std::string Replanner::decide(bool first, const std::vector<SeenRates>& seen) {
  if (!first && links_may_change()) {
    const std::vector<SeenRates> can = rates_of(choice_.tuner()->topology(), aggregators_.group() == nullptr);
    const auto fastest = fastest_by_host(wires_.hosts, seen);
    if (link_watch_.has_drifted(by_host(wires_.hosts, seen), can, fastest)) return kMeasure;
  }
  return aggregators_.decide(first);
}

SeenRates Replanner::seen_rates() {
  const NicRates rates = wires_.take_rates();
  SeenRates seen{rates.up_bytes_per_s, rates.down_bytes_per_s};
  if (const auto with_aggregators = aggregators_.group()) {
    const SeenRates more = with_aggregators->seen_rates();
    seen = {seen.up + more.up, seen.down + more.down};
  }
  return seen;
}

Status Replanner::measure_again(Deadline deadline) {
  const std::shared_ptr<Tuner> before = choice_.tuner();
  aggregators_.part();  // its links will be measured again, together with ours
  member_.engine->links().forget(
      wires_.host_addresses);  // on all ranks: a rank that remembers old links would store them
  if (Status bad = choice_.learn(true, deadline); !bad.ok()) return bad;
  static_cast<void>(seen_rates());  // drops the rates of the benchmark and of the plan before
  if (member_.rank != 0) return {};
  const std::string changes = changes_text(before->topology(), choice_.tuner()->topology());
  log(changes.empty() ? LogLevel::kInfo : LogLevel::kWarning,
      "group \"" + member_.name + "\" has measured its links again: " +
          (changes.empty() ? "they are as they were" : changes + " Mbit/s up/down; planned anew"));
  link_watch_.measured_again(!changes.empty());
  return {};
}

}  // namespace braid
