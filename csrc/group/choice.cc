// SPDX-License-Identifier: Apache-2.0
#include "group/choice.h"

#include <algorithm>
#include <utility>

#include "communicator/checks.h"
#include "links/control_channel.h"
#include "links/link_benchmark.h"
#include "links/pace.h"
#include "links/processor.h"
#include "links/tuning.h"

namespace braid {
namespace {

// The chunk size where the tuner states none. It states none for groups with boards. There it counts for the
// operations that boards cannot carry.
constexpr size_t kChunkBytes = 256 * 1024;

}  // namespace

Result<Topology> AlgorithmChoice::learn_links(bool again, Deadline deadline, const GiveUp& give_up) {
  const Link within = link_within_hosts(wires_.most_ranks_per_core);
  if (member_.options.stated)
    return stated_topology(wires_.hosts, within, member_.options.stated->between, wires_.rates);
  if (member_.options.links == "assume") return Topology(wires_.hosts, within, kBetweenHosts);
  const auto known =
      again ? std::nullopt : member_.engine->links().recall(wires_.host_addresses, wires_.hosts, within);
  auto found = benchmark_links(mailbox_, member_.engine->bell(), member_.rank, wires_.hosts, within,
                               known ? to_text(*known) : "", deadline, give_up);
  if (!found.ok()) return found.status().within("measuring the links between hosts");
  if (found.value().measured) member_.engine->links().keep(wires_.host_addresses, found.value().topology);
  Topology topology = std::move(found).value().topology;
  if (again) {
    topology.set_work(tuner()->topology().work());
    return topology;
  }
  ControlChannel control(mailbox_, member_.engine->bell(), "comparing their processors", deadline, give_up);
  control.begin(ControlPurpose::kProcessors);
  auto rates = slowest_of_all(control, member_.rank, member_.nodes, processor_rates());
  if (!rates.ok()) return rates.status();
  topology.set_work(std::move(rates).value());
  return topology;
}

Status AlgorithmChoice::learn(bool again, Deadline deadline, const GiveUp& give_up) {
  if (member_.options.stated && !member_.options.stated->problem.empty()) {
    return {Code::kInvalidArgument, member_.options.stated->problem};
  }
  if (is_links_file(member_.options.links) && !member_.options.stated) {
    return {Code::kInvalidArgument, "BRAID_LINKS=" + member_.options.links + ": nobody has read that file"};
  }
  Topology topology(wires_.hosts, link_inside({wires_.board != nullptr, wires_.ranks_per_core}), kBetweenHosts);
  if (wires_.board) topology.set_work(wires_.memory);
  if (!again) is_on_several_hosts_ = topology.host_count() > 1;
  if (topology.host_count() > 1) {
    pace_peers(nullptr);
    auto learned = learn_links(again, deadline, give_up);
    if (!learned.ok()) return learned.status();
    topology = std::move(learned).value();
    limit_credit(topology);
    if (member_.options.pacing && !member_.options.stated && member_.options.links != "assume")
      pace_peers(&topology);
  }
  auto made = tuner_for(std::move(topology), member_.options);
  if (!made.ok()) return made.status();
  const std::lock_guard lock(mutex_);
  tuner_ = std::move(made).value();
  last_route_ = {};
  if (again) epoch_.fetch_add(1, std::memory_order_release);
  return {};
}

void AlgorithmChoice::limit_credit(const Topology& topology) {
  double bytes = static_cast<double>(member_.options.credit_bytes);
  if (member_.options.credit_bytes == 0) {
    const double down_s_per_byte = topology.nic(topology.host(member_.rank)).down_s_per_byte;
    const int sharers =
        topology.host_sizes()[static_cast<size_t>(topology.numbered_hosts()[static_cast<size_t>(member_.rank)])];
    bytes = credit_for(down_s_per_byte, sharers);
  }
  mailbox_.set_credit(static_cast<size_t>(bytes));
}

void AlgorithmChoice::pace_peers(const Topology* topology) {
  for (Node peer = 0; peer < member_.nodes; ++peer) {
    if (peer == member_.rank) continue;
    double bytes_per_s = 0;
    if (topology != nullptr && topology->host(peer) != topology->host(member_.rank)) {
      const double up_s = topology->nic(topology->host(member_.rank)).up_s_per_byte;
      const double down_s = topology->nic(topology->host(peer)).down_s_per_byte;
      bytes_per_s = pace_for(std::max(up_s, down_s));
    }
    mailbox_.pace(peer, bytes_per_s);
  }
}

Result<const Route*> AlgorithmChoice::route_for(const Operation& operation) {
  const RouteKey asked{operation.kind,
                       operation.dtype,
                       operation.op,
                       has_root(operation.kind) ? operation.root : 0,
                       codec_number(operation.lossy),
                       agreed_bytes(operation)};
  std::shared_ptr<Tuner> tuner;
  int epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    if (last_route_.route != nullptr && last_route_.key == asked) return last_route_.route;
    tuner = tuner_;
    epoch = epoch_.load(std::memory_order_relaxed);
  }
  const Collective collective{operation.kind, member_.ranks, asked.root};
  const std::optional<Codec> codec = operation.lossy ? std::optional(operation.lossy->codec) : std::nullopt;
  auto choice = tuner->choose(collective, operation.dtype, operation.op, asked.bytes, codec);
  if (!choice.ok()) return choice.status();
  const VerifiedSchedulePtr& schedule = choice.value()->schedule;

  const std::lock_guard lock(mutex_);
  const std::tuple key(schedule.get(), choice.value()->chunk_bytes, asked.codec);
  auto found = routes_.find(key);
  if (found == routes_.end()) {
    Route route;
    route.schedule = schedule;
    route.epoch = epoch;
    const auto chunk_bytes = static_cast<size_t>(choice.value()->chunk_bytes);
    route.chunk_bytes = chunk_bytes > 0 ? chunk_bytes : kChunkBytes;
    const std::string& algorithm = schedule->schedule().algorithm;
    route.counters =
        &statistics_.row(name_of(operation.kind), codec ? algorithm + " " + to_text(*codec) : algorithm);
    if (wires_.board) {
      const Host host{wires_.board->bounce_bytes(), wires_.ranks_per_core > 1, wires_.readable};
      route.board = plan_for_boards(*schedule, host);
    }
    found = routes_.emplace(key, std::move(route)).first;  // last, so that an exception leaves no partial route
  }
  if (epoch == epoch_.load(std::memory_order_relaxed)) last_route_ = {asked, &found->second};
  return &found->second;
}

std::shared_ptr<Tuner> AlgorithmChoice::tuner() const {
  const std::lock_guard lock(mutex_);
  return tuner_;
}

std::optional<double> AlgorithmChoice::predicted_s(DType dtype, ReduceOp op, int64_t bytes) const {
  const auto choice = tuner()->choose({CollectiveKind::kAllReduce, member_.ranks, 0}, dtype, op, bytes);
  if (!choice.ok()) return std::nullopt;
  return choice.value()->predicted_s;
}

}  // namespace braid
