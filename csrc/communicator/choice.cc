// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries an operation.
#include <algorithm>
#include <numeric>
#include <utility>

#include "communicator/checks.h"
#include "communicator/group.h"
#include "communicator/survey.h"

namespace braid {
namespace {

// Memory of one host, and where links are not measured a gigabit network. Equal on all ranks, so all choose alike.
constexpr Link kBoard{1.3e-6, 1.5e-10};
constexpr Link kWithinHost{2e-6, 1.5e-10};
constexpr Link kBetweenHosts{5e-5, 8e-9};
// What a message costs the processors of both sides on its way through TCP.
constexpr double kCardOverhead_s = 3e-5;
// What a family is given over those behind it in the table, as links are shared and their rates noisy.
constexpr double kMargin = 0.1;
constexpr size_t kChunkBytes = 256 * 1024;  // of what boards cannot carry
// A card's credit: what it takes in in this time, so that a switch's queue holds it; and never less than two messages
// of the smallest chunks, nor more than is needed on any network.
constexpr double kCreditTime_s = 10e-3;
constexpr double kLeastCredit = 128 * 1024;
constexpr double kMostCredit = 4 * 1024 * 1024;

// What each owner has of the vector; empty where all have the same.
std::vector<double> parts_of(const std::vector<uint64_t>& shares) {
  std::vector<double> parts(shares.begin(), shares.end());
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

}  // namespace

Result<Topology> Group::learn_links() {
  if (options_.links == "assume") return Topology(wires_.hosts, kWithinHost, kBetweenHosts);
  const auto known = engine_->links().recall(wires_.host_names, wires_.hosts, kWithinHost);
  auto found = survey(mailbox_, engine_->bell(), rank_, wires_.hosts, kWithinHost, known ? to_text(*known) : "",
                      deadline_after(options_.timeout));
  if (!found.ok()) return found.status().within("measuring the links between hosts");
  if (found.value().measured) engine_->links().keep(wires_.host_names, found.value().topology);
  return std::move(found).value().topology;
}

Status Group::make_tuner() {
  TunerOptions tuner;
  tuner.algorithm = options_.algorithm;
  Link within_host = kWithinHost;
  if (wires_.board) {
    tuner.rates.writes_once = true;
    // Ranks that share a core work one after another; and a round needs all of them, each of which has others before
    // it. That the latter goes with the square is fitted to two and four ranks per core.
    const double sharers = std::max(wires_.ranks_per_core, 1.0);
    within_host = {kBoard.alpha_s * sharers * sharers, kBoard.beta_s_per_byte * sharers};
    tuner.rates.overhead_s *= sharers;
    tuner.rates.reduce_s_per_byte *= sharers;
  }
  Topology topology(wires_.hosts, within_host, kBetweenHosts);
  if (topology.host_count() > 1) {
    auto learned = learn_links();
    if (!learned.ok()) return learned.status();
    topology = std::move(learned).value();
    limit_credit(topology);
    tuner.rates.card_overhead_s = kCardOverhead_s;
    tuner.margin = kMargin;
  }
  if (!wires_.board) {  // boards cut otherwise, and their constants were fitted to whole operations
    tuner.chunk_bytes = options_.chunk_bytes;
    tuner.window = options_.window;
  }
  auto made = Tuner::create(std::move(topology), std::move(tuner));
  if (!made.ok()) return made.status().within("BRAID_ALGORITHM");
  tuner_ = std::move(made).value();
  return {};
}

void Group::limit_credit(const Topology& topology) {
  double bytes = static_cast<double>(options_.credit_bytes);
  if (options_.credit_bytes == 0) {
    const double down_s_per_byte = topology.card(topology.host(rank_)).down_s_per_byte;
    const int sharers =
        topology.host_sizes()[static_cast<size_t>(topology.numbered_hosts()[static_cast<size_t>(rank_)])];
    bytes = std::clamp(kCreditTime_s / std::max(down_s_per_byte, 1e-12) / sharers, kLeastCredit, kMostCredit);
  }
  mailbox_.set_credit(static_cast<size_t>(bytes));
}

Result<const Route*> Group::route_for(const Operation& operation) {
  Intent asked;
  asked.kind = static_cast<uint8_t>(operation.kind);
  asked.dtype = static_cast<uint8_t>(operation.dtype);
  asked.op = static_cast<uint8_t>(operation.op);
  asked.root = has_root(operation.kind) ? operation.root : 0;
  asked.bytes = static_cast<uint64_t>(agreed_bytes(operation));
  {
    const std::lock_guard lock(mutex_);
    if (last_route_.route != nullptr && last_route_.asked == asked) return last_route_.route;
  }
  const Collective collective{operation.kind, ranks_, asked.root};
  auto choice = tuner_->choose(collective, operation.dtype, operation.op, static_cast<int64_t>(asked.bytes));
  if (!choice.ok()) return choice.status();
  const SharedSchedule& schedule = choice.value()->schedule;

  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = routes_.try_emplace({schedule.get(), choice.value()->chunk_bytes});
  Route& route = found->second;
  if (is_new) {
    route.schedule = schedule;
    const auto chunk_bytes = static_cast<size_t>(choice.value()->chunk_bytes);
    route.chunk_bytes = chunk_bytes > 0 ? chunk_bytes : kChunkBytes;
    route.counters = &statistics_.row(name_of(operation.kind), schedule->schedule().family);
    if (wires_.board) {
      const Host host{wires_.board->stage_bytes(), wires_.ranks_per_core > 1, wires_.readable};
      route.shared = plan_shared(*schedule, host);
    }
  }
  last_route_ = {asked, &route};
  return &route;
}

Result<Explanation> Group::explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes: a size is never negative");
  const bool reduces = is_reduction(kind) && kind != CollectiveKind::kBarrier;
  if (reduces && !is_defined(dtype, op)) return Status(Code::kInvalidArgument, undefined_text(dtype, op));
  if (kind == CollectiveKind::kBarrier) bytes = 0;
  const Collective collective{kind, ranks_, has_root(kind) ? root : 0};
  const auto made = tuner_->explain(collective, dtype, op, is_size_agreed(kind) ? bytes : 0, bytes);
  if (!made.ok()) return made.status();
  const Choice& choice = made.value();
  return Explanation{std::string(name_of(kind)), choice.family, choice.predicted_s,
                     choice.runners_up,          choice.reason, parts_of(choice.shares),
                     choice.chunk_bytes};
}

}  // namespace braid
