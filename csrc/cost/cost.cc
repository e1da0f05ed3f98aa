// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cost/chunk_sizes.h"
#include "cost/port.h"
#include "schedule/order.h"

namespace braid {
namespace {

class Prediction {
 public:
  // Predicts one segment of `bytes`. NICs pass the first `burst_bytes` in no time.
  Prediction(const Schedule& schedule, const Order& order, int64_t bytes, const Topology& topology,
             const Rates& rates, double burst_bytes)
      : schedule_(schedule),
        order_(order),
        topology_(topology),
        rates_(rates),
        sizes_(schedule, bytes),
        ports_(schedule.programs.size()),
        start_s_(schedule.programs.size(), 0),
        arrived_s_(schedule.programs.size(), 0) {
    for (size_t node = 0; node < ports_.size(); ++node) ports_[node].resize(schedule.programs[node].size());
    share_nics();
    const std::vector<double> slow_parts = slow_parts_after(burst_bytes);
    for (size_t i = 0; i < order.messages.size(); ++i) {
      const Message& message = order.messages[i];
      if (is_never_sent(message)) continue;
      for (Direction direction : {kOut, kIn}) {
        const Endpoint& at = end_of(message, direction);
        const double on_link_s = moved_bytes(message, direction) * link(message).beta_s_per_byte;
        ports_[at.node][at.round][direction][is_local(message)].add(slow_parts[i] * occupied_s(message, direction),
                                                                    slow_parts[i] * on_link_s);
      }
    }
  }

  double run() {
    for (const Event& event : order_.events) {
      if (event.message < 0) {
        finish_round(event.node, event.round);
      } else {
        move(order_.messages[event.message]);
      }
    }
    return *std::max_element(start_s_.begin(), start_s_.end());
  }

  // Seconds for which a node's processor works on the messages over NICs of the ranks that share its core.
  double others_messages_s() const {
    const auto crosses = [&](const Message& message) { return !is_local(message) && !is_never_sent(message); };
    const auto messages = static_cast<double>(std::ranges::count_if(order_.messages, crosses));
    return (rates_.sharers - 1) * rates_.nic_overhead_s * messages / static_cast<double>(ports_.size());
  }

  // How long one segment occupies its bottleneck: a port, a node's local steps, or a special link.
  double bottleneck_s() const {
    double most_s = 0;
    for (size_t node = 0; node < ports_.size(); ++node) {
      std::array<Occupation, 2> occupation;
      double local_s = 0;
      for (size_t round = 0; round < ports_[node].size(); ++round) {
        for (Direction direction : {kOut, kIn}) occupation[direction].add(ports_[node][round][direction], rates_);
        local_s += local_work_s(static_cast<Node>(node), round);
      }
      most_s = std::max({most_s, occupation[kOut].seconds(), occupation[kIn].seconds(), local_s});
    }
    return std::max(most_s, busiest_special_link_s());
  }

 private:
  static const Endpoint& end_of(const Message& message, Direction direction) {
    return direction == kOut ? message.from : message.to;
  }
  const Lanes& lanes(const Message& message, Direction direction) const {
    const Endpoint& at = end_of(message, direction);
    return ports_[at.node][at.round][direction];
  }
  Link link(const Message& message) const { return topology_.link(message.from.node, message.to.node); }
  bool is_local(const Message& message) const {
    return topology_.host(message.from.node) == topology_.host(message.to.node);
  }

  double moved_bytes(const Message& message, Direction direction) const {
    const bool once = direction == kOut && rates_.writes_once && is_local(message);
    return once && is_written_before(message) ? 0 : size_of(message);
  }

  // Seconds for which the message occupies the memory, or the host's NIC as a whole.
  double whole_s(const Message& message, Direction direction) const {
    double beta = topology_.within_host().beta_s_per_byte;
    if (!is_local(message)) {
      const Topology::Nic nic = topology_.nic(topology_.host(end_of(message, direction).node));
      beta = direction == kOut ? nic.up_s_per_byte : nic.down_s_per_byte;
    }
    return moved_bytes(message, direction) * std::min(beta, link(message).beta_s_per_byte);
  }

  // Seconds for which the message occupies the memory, or the node's share of the NIC.
  double occupied_s(const Message& message, Direction direction) const {
    const double s = whole_s(message, direction);
    return is_local(message) ? s : s * slowdown_[direction][end_of(message, direction).node];
  }

  // Per message, the fraction that takes time: the bursts of both ends let the rest pass in no time.
  std::vector<double> slow_parts_after(double burst_bytes) const {
    std::vector<double> parts(order_.messages.size(), burst_bytes > 0 ? 0 : 1);
    if (burst_bytes <= 0) return parts;
    std::vector<size_t> by_round(parts.size());
    std::iota(by_round.begin(), by_round.end(), size_t{0});
    for (Direction direction : {kOut, kIn}) {
      std::vector<double> left(ports_.size());
      for (size_t node = 0; node < left.size(); ++node) {
        left[node] = burst_bytes / topology_.host_sizes()[topology_.numbered_hosts()[node]];
      }
      std::stable_sort(by_round.begin(), by_round.end(), [&](size_t a, size_t b) {
        return end_of(order_.messages[a], direction).round < end_of(order_.messages[b], direction).round;
      });
      for (const size_t i : by_round) {
        const Message& message = order_.messages[i];
        if (is_local(message)) parts[i] = 1;
        const double bytes = size_of(message);
        if (is_local(message) || is_never_sent(message) || bytes <= 0) continue;
        double& bucket = left[end_of(message, direction).node];
        const double passes = std::min(bucket, bytes);
        bucket -= passes;
        parts[i] = std::max(parts[i], 1 - passes / bytes);
      }
    }
    return parts;
  }

  // Sets slowdown_: the NIC time of all nodes of a host, divided by the NIC time of each node.
  void share_nics() {
    for (Direction direction : {kOut, kIn}) {
      std::vector<double> of_host(topology_.host_count(), 0);
      std::vector<double> of_node(ports_.size(), 0);
      for (const Message& message : order_.messages) {
        if (is_local(message)) continue;
        const Node node = end_of(message, direction).node;
        const double s = whole_s(message, direction);
        of_host[topology_.numbered_hosts()[node]] += s;
        of_node[node] += s;
      }
      for (size_t node = 0; node < of_node.size(); ++node) {
        const double host_s = of_host[topology_.numbered_hosts()[node]];
        slowdown_[direction].push_back(of_node[node] > 0 ? host_s / of_node[node] : 1);
      }
    }
  }

  double busiest_special_link_s() const {
    if (topology_.special_links().empty()) return 0;
    std::map<std::pair<int, int>, double> occupied;
    double most_s = 0;
    for (const Message& message : order_.messages) {
      const std::pair<int, int> ends(message.from.node, message.to.node);
      if (!topology_.special_links().contains(ends)) continue;
      occupied[ends] += size_of(message) * link(message).beta_s_per_byte;
      most_s = std::max(most_s, occupied[ends]);
    }
    return most_s;
  }

  // Bytes of the message, by the sender's ref.
  double size_of(const Message& message) const {
    const Step& step = schedule_.programs[message.from.node][message.from.round][message.from.step];
    return size_of(message.from.node, step.target);
  }

  // True if all chunks of the message have share 0, so that it is empty for every size of the operation.
  bool is_never_sent(const Message& message) const {
    if (schedule_.shares.empty()) return false;
    const Ref& sent = schedule_.programs[message.from.node][message.from.round][message.from.step].target;
    const auto first = schedule_.shares.begin() + sent.first;
    return std::all_of(first, first + sent.count, [](uint64_t share) { return share == 0; });
  }

  // True if an earlier step of the round sends the same chunks.
  bool is_written_before(const Message& message) const {
    const Round& round = schedule_.programs[message.from.node][message.from.round];
    const Step& step = round[message.from.step];
    return std::any_of(round.begin(), round.begin() + message.from.step, [&](const Step& earlier) {
      return earlier.op == Op::kSend && earlier.target == step.target;
    });
  }

  double size_of(Node node, const Ref& ref) const { return sizes_.of(node, ref); }

  void move(const Message& message) {
    if (is_never_sent(message)) return;
    double begun_s = std::max(start_s_[message.from.node], start_s_[message.to.node]);
    double ports_s = std::max(busy_s(lanes(message, kOut), rates_), busy_s(lanes(message, kIn), rates_));
    double end_s = begun_s + link(message).alpha_s + ports_s;
    for (Node node : {message.from.node, message.to.node}) arrived_s_[node] = std::max(arrived_s_[node], end_s);
  }

  void finish_round(Node node, int32_t round) {
    start_s_[node] = std::max(start_s_[node], arrived_s_[node]) + local_work_s(node, round);
  }

  double local_work_s(Node node, size_t round) const {
    double work_s = 0;
    for (const Step& step : schedule_.programs[node][round]) {
      if (rates_.code_s_per_byte > 0) work_s += coded_bytes(node, step) * rates_.code_s_per_byte;
      if (step.op != Op::kReduce && step.op != Op::kCopy) continue;
      double moved = static_cast<double>(step.sources.size() + 1) / 3;
      work_s += moved * size_of(node, step.target) * rates_.reduce_s_per_byte;
    }
    return work_s;
  }

  bool is_far(Node from, Node node) const { return from >= 0 && topology_.host(from) != topology_.host(node); }

  // Bytes that a step encodes or decodes. Here a sum with several receivers is encoded once per receiver. In truth
  // its owner encodes it once, but then also decodes it.
  double coded_bytes(Node node, const Step& step) const {
    const auto far = std::count_if(step.sources.begin(), step.sources.end(),
                                   [&](const Source& source) { return is_far(source.from, node); });
    const bool passes = (step.op == Op::kSend || step.op == Op::kRecv) && is_far(step.peer, node);
    return passes || far > 0 ? static_cast<double>(far + (passes ? 1 : 0)) * size_of(node, step.target) : 0;
  }

  const Schedule& schedule_;
  const Order& order_;
  const Topology& topology_;
  const Rates& rates_;
  const ChunkSizes sizes_;
  std::array<std::vector<double>, 2> slowdown_;  // per node: the host's use of the NIC divided by the node's
  std::vector<std::vector<Port>> ports_;         // per node and round
  std::vector<double> start_s_;                  // per node, when its current round began
  std::vector<double> arrived_s_;                // per node, when the last message of its current round ended
};

}  // namespace

Result<double> predict_s(const Schedule& schedule, int64_t bytes, const Topology& topology, const Rates& rates,
                         const Pipeline& pipeline) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes");
  if (pipeline.segments < 1) {
    return Status(Code::kInvalidArgument, std::to_string(pipeline.segments) + " segments");
  }
  if (pipeline.window < 1) {
    return Status(Code::kInvalidArgument, "a window of " + std::to_string(pipeline.window) + " segments");
  }
  if (topology.nodes() != schedule.nodes()) {
    return Status(Code::kInvalidArgument, "a topology of " + std::to_string(topology.nodes()) + " nodes for " +
                                              nodes_text(schedule.collective.ranks, schedule.aggregators()));
  }
  Result<Order> order = order_of(schedule);
  if (!order.ok()) return order.status();
  const int64_t segment_bytes = bytes / pipeline.segments + (bytes % pipeline.segments != 0 ? 1 : 0);
  Prediction later(schedule, order.value(), segment_bytes, topology, rates, 0);
  const double burst_bytes = topology.burst_bytes();
  const double one_s = burst_bytes > 0
                           ? Prediction(schedule, order.value(), segment_bytes, topology, rates, burst_bytes).run()
                           : later.run();
  if (pipeline.segments == 1) return one_s + later.others_messages_s();
  const double next_s = std::max(later.bottleneck_s(), one_s / pipeline.window);
  return one_s + static_cast<double>(pipeline.segments - 1) * next_s;
}

}  // namespace braid
