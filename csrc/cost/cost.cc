// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "schedule/order.h"

namespace braid {
namespace {

// One direction of a node's memory or card during one round.
struct Lane {
  int messages = 0;
  double bytes = 0;
  double fastest_s_per_byte = 0;
  double longest_s = 0;

  void add(double message_bytes, double beta_s_per_byte) {
    fastest_s_per_byte = messages == 0 ? beta_s_per_byte : std::min(fastest_s_per_byte, beta_s_per_byte);
    longest_s = std::max(longest_s, message_bytes * beta_s_per_byte);
    bytes += message_bytes;
    ++messages;
  }
  double wire_s() const { return std::max(bytes * fastest_s_per_byte, longest_s); }
};

struct Port {
  std::array<Lane, 2> out;  // [0] card, [1] memory
  std::array<Lane, 2> in;
};

double busy_s(const std::array<Lane, 2>& lanes, double overhead_s) {
  return (lanes[0].messages + lanes[1].messages) * overhead_s + std::max(lanes[0].wire_s(), lanes[1].wire_s());
}

class Prediction {
 public:
  // Of one segment of `bytes`.
  Prediction(const Schedule& schedule, const Order& order, int64_t bytes, const Topology& topology,
             const Rates& rates)
      : schedule_(schedule),
        order_(order),
        topology_(topology),
        rates_(rates),
        offsets_(chunk_offsets(schedule, bytes)),
        ports_(schedule.programs.size()),
        start_s_(schedule.programs.size(), 0),
        arrived_s_(schedule.programs.size(), 0) {
    for (size_t node = 0; node < ports_.size(); ++node) ports_[node].resize(schedule.programs[node].size());
    for (const Message& message : order.messages) {
      bool local = topology.host(message.from.node) == topology.host(message.to.node);
      const bool again = local && rates.writes_once && is_written_before(message);
      port(message.from).out[local].add(again ? 0 : size_of(message), link(message).beta_s_per_byte);
      port(message.to).in[local].add(size_of(message), link(message).beta_s_per_byte);
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

  // How long the busiest direction of a port, or the busiest node's local work, is occupied in all.
  double bottleneck_s() const {
    double most_s = 0;
    for (size_t node = 0; node < ports_.size(); ++node) {
      double out_s = 0;
      double in_s = 0;
      double local_s = 0;
      for (size_t round = 0; round < ports_[node].size(); ++round) {
        out_s += busy_s(ports_[node][round].out, rates_.overhead_s);
        in_s += busy_s(ports_[node][round].in, rates_.overhead_s);
        local_s += local_work_s(static_cast<Node>(node), round);
      }
      most_s = std::max({most_s, out_s, in_s, local_s});
    }
    return most_s;
  }

 private:
  Port& port(const Endpoint& at) { return ports_[at.node][at.round]; }
  const Link& link(const Message& message) const { return topology_.link(message.from.node, message.to.node); }

  // As the sender names it: where a node has only one block, chunk 0 is the block of that node.
  double size_of(const Message& message) const {
    const Step& step = schedule_.programs[message.from.node][message.from.round][message.from.step];
    return size_of(message.from.node, step.target);
  }

  // An earlier step of the round sends the same.
  bool is_written_before(const Message& message) const {
    const Round& round = schedule_.programs[message.from.node][message.from.round];
    const Step& step = round[message.from.step];
    return std::any_of(round.begin(), round.begin() + message.from.step, [&](const Step& earlier) {
      return earlier.op == Op::kSend && earlier.target == step.target;
    });
  }

  double size_of(Node node, const Ref& ref) const {
    int first = ref.first;
    CollectiveKind kind = schedule_.collective.kind;
    bool own_input = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
    bool own_output = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter;
    if ((own_input && ref.buffer == Buffer::kInput) || (own_output && ref.buffer == Buffer::kOutput)) first = node;
    return static_cast<double>(offsets_[first + ref.count] - offsets_[first]);
  }

  void move(const Message& message) {
    double begun_s = std::max(start_s_[message.from.node], start_s_[message.to.node]);
    double ports_s = std::max(busy_s(port(message.from).out, rates_.overhead_s),
                              busy_s(port(message.to).in, rates_.overhead_s));
    double end_s = begun_s + link(message).alpha_s + ports_s;
    for (Node node : {message.from.node, message.to.node}) arrived_s_[node] = std::max(arrived_s_[node], end_s);
  }

  void finish_round(Node node, int32_t round) {
    start_s_[node] = std::max(start_s_[node], arrived_s_[node]) + local_work_s(node, round);
  }

  double local_work_s(Node node, size_t round) const {
    double work_s = 0;
    for (const Step& step : schedule_.programs[node][round]) {
      if (step.op != Op::kReduce && step.op != Op::kCopy) continue;
      double moved = static_cast<double>(step.sources.size() + 1) / 3;
      work_s += moved * size_of(node, step.target) * rates_.reduce_s_per_byte;
    }
    return work_s;
  }

  const Schedule& schedule_;
  const Order& order_;
  const Topology& topology_;
  const Rates& rates_;
  std::vector<int64_t> offsets_;
  std::vector<std::vector<Port>> ports_;  // per node and round
  std::vector<double> start_s_;           // per node, when its current round began
  std::vector<double> arrived_s_;         // per node, when the last message of its current round was through
};

}  // namespace

Result<double> predict_s(const Schedule& schedule, int64_t bytes, const Topology& topology, const Rates& rates,
                         int segments) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes");
  if (segments < 1) return Status(Code::kInvalidArgument, std::to_string(segments) + " segments");
  if (topology.nodes() != schedule.collective.ranks) {
    return Status(Code::kInvalidArgument, "a topology of " + std::to_string(topology.nodes()) + " nodes for " +
                                              std::to_string(schedule.collective.ranks) + " ranks");
  }
  Result<Order> order = order_of(schedule);
  if (!order.ok()) return order.status();
  int64_t segment_bytes = bytes / segments + (bytes % segments != 0 ? 1 : 0);
  Prediction prediction(schedule, order.value(), segment_bytes, topology, rates);
  double one_s = prediction.run();
  return one_s + (segments - 1) * prediction.bottleneck_s();
}

}  // namespace braid
