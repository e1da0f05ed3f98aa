// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries an operation.
#include <algorithm>
#include <utility>

#include "communicator/checks.h"
#include "communicator/group.h"

namespace braid {
namespace {

// Until links are measured: ordinary ones, memory of one host and a gigabit network. Equal on all ranks, so all choose
// alike.
constexpr Link kBoard{1.3e-6, 1.5e-10};
constexpr Link kWithinHost{2e-6, 1.5e-10};
constexpr Link kBetweenHosts{5e-5, 8e-9};

}  // namespace

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
  if (topology.host_count() > 1) {  // boards cut otherwise, and their constants were fitted to whole operations
    tuner.chunk_bytes = options_.chunk_bytes;
    tuner.window = options_.window;
  }
  auto made = Tuner::create(std::move(topology), std::move(tuner));
  if (!made.ok()) return made.status().within("BRAID_ALGORITHM");
  tuner_ = std::move(made).value();
  return {};
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
  const auto [found, is_new] = routes_.try_emplace(schedule.get());
  Route& route = found->second;
  if (is_new) {
    route.schedule = schedule;
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
  return Explanation{std::string(name_of(kind)), choice.family, choice.predicted_s, choice.runners_up,
                     choice.reason};
}

}  // namespace braid
