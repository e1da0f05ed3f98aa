// SPDX-License-Identifier: Apache-2.0
#include "schedule/order.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "schedule/text.h"

namespace braid {
namespace {

struct End {
  Node sender;
  Node receiver;
  Endpoint at;

  std::tuple<Node, Node> pair() const { return {sender, receiver}; }
};

Status refuse(const Schedule& schedule, const Endpoint& at, const std::string& reason) {
  return {Code::kInvalidArgument, to_text(schedule, at.node, at.round, at.step) + ": " + reason};
}

void collect(const Schedule& schedule, std::vector<End>* leaving, std::vector<End>* landing) {
  for (Node node = 0; node < static_cast<Node>(schedule.programs.size()); ++node) {
    const Program& program = schedule.programs[node];
    for (size_t round = 0; round < program.size(); ++round) {
      for (size_t index = 0; index < program[round].size(); ++index) {
        const Step& step = program[round][index];
        Endpoint at{node, static_cast<int32_t>(round), static_cast<int32_t>(index), -1};
        if (step.op == Op::kSend) leaving->push_back({node, step.peer, at});
        if (step.op == Op::kRecv) landing->push_back({step.peer, node, at});
        if (step.op != Op::kReduce) continue;
        for (size_t source = 0; source < step.sources.size(); ++source) {
          if (!step.sources[source].is_remote()) continue;
          at.source = static_cast<int32_t>(source);
          landing->push_back({step.sources[source].from, node, at});
        }
      }
    }
  }
  // A stable sort keeps the order of rounds, steps and sources within a pair of nodes.
  auto by_pair = [](const End& a, const End& b) { return a.pair() < b.pair(); };
  std::stable_sort(leaving->begin(), leaving->end(), by_pair);
  std::stable_sort(landing->begin(), landing->end(), by_pair);
}

Result<std::vector<Message>> pair_up(const Schedule& schedule) {
  std::vector<End> leaving;
  std::vector<End> landing;
  collect(schedule, &leaving, &landing);
  std::vector<Message> messages;
  messages.reserve(leaving.size());
  for (size_t index = 0; index < std::max(leaving.size(), landing.size()); ++index) {
    bool has_send = index < leaving.size();
    bool has_take = index < landing.size();
    if (has_send && (!has_take || leaving[index].pair() < landing[index].pair())) {
      return refuse(schedule, leaving[index].at,
                    "r" + std::to_string(leaving[index].receiver) + " never takes this message");
    }
    if (!has_send || landing[index].pair() < leaving[index].pair()) {
      return refuse(schedule, landing[index].at,
                    "r" + std::to_string(landing[index].sender) + " never sends the message it takes");
    }
    bool follows = index > 0 && leaving[index - 1].pair() == leaving[index].pair();
    int32_t number = follows ? messages.back().number + 1 : 0;
    messages.push_back({leaving[index].at, landing[index].at, number});
  }
  return messages;
}

// Lets every node go as far as it can. A message that can move can also move later. So the order of trying does
// not change how far the nodes get.
class Walk {
 public:
  Walk(const Schedule& schedule, Order* order) : schedule_(schedule), order_(*order) {
    first_round_.push_back(0);
    for (const Program& program : schedule.programs) {
      first_round_.push_back(first_round_.back() + program.size());
    }
    position_.assign(schedule.programs.size(), -1);
    waiting_.resize(first_round_.back());
    left_.assign(first_round_.back(), 0);
    moved_.assign(order_.messages.size(), false);
    for (size_t index = 0; index < order_.messages.size(); ++index) {
      for (const Endpoint* end : {&order_.messages[index].from, &order_.messages[index].to}) {
        waiting_[round_id(*end)].push_back(static_cast<int32_t>(index));
        ++left_[round_id(*end)];
      }
    }
  }

  Status run() {
    for (Node node = 0; node < static_cast<Node>(position_.size()); ++node) enter(node);
    while (!ready_.empty()) {
      Node node = ready_.back();
      ready_.pop_back();
      order_.events.push_back({-1, node, position_[node]});
      enter(node);
    }
    for (Node node = 0; node < static_cast<Node>(position_.size()); ++node) {
      if (!finished(node)) return describe_deadlock(node);
    }
    return {};
  }

 private:
  size_t round_id(const Endpoint& end) const { return first_round_[end.node] + end.round; }
  bool finished(Node node) const {
    return position_[node] == static_cast<int32_t>(schedule_.programs[node].size());
  }

  // Takes the node to its next round, and moves the messages that can move now.
  void enter(Node node) {
    ++position_[node];
    if (finished(node)) return;
    size_t id = first_round_[node] + position_[node];
    if (left_[id] == 0) ready_.push_back(node);
    for (int32_t index : waiting_[id]) {
      const Message& message = order_.messages[index];
      bool here =
          position_[message.from.node] == message.from.round && position_[message.to.node] == message.to.round;
      if (!here || moved_[index]) continue;
      moved_[index] = true;
      order_.events.push_back({index, 0, 0});
      for (const Endpoint* end : {&message.from, &message.to}) {
        if (--left_[round_id(*end)] == 0) ready_.push_back(end->node);
      }
    }
  }

  Status describe_deadlock(Node node) const {
    for (int32_t index : waiting_[first_round_[node] + position_[node]]) {
      if (moved_[index]) continue;
      const Message& message = order_.messages[index];
      bool sends = message.from.node == node;
      const Endpoint& mine = sends ? message.from : message.to;
      const Endpoint& other = sends ? message.to : message.from;
      return refuse(schedule_, mine,
                    "deadlock: waits for r" + std::to_string(other.node) + " to reach round " +
                        std::to_string(other.round) + ", but that never gets past round " +
                        std::to_string(position_[other.node]));
    }
    return {Code::kInternal, "a node stopped without a message to wait for"};
  }

  const Schedule& schedule_;
  Order& order_;
  std::vector<size_t> first_round_;            // per node, the number of its round 0 among all rounds
  std::vector<int32_t> position_;              // per node, the round it is in; -1 before its first
  std::vector<std::vector<int32_t>> waiting_;  // per round, its messages
  std::vector<int32_t> left_;                  // per round, how many of them have not moved
  std::vector<bool> moved_;                    // per message
  std::vector<Node> ready_;                    // nodes with all messages of their round
};

}  // namespace

Result<Order> order_of(const Schedule& schedule) {
  Result<std::vector<Message>> messages = pair_up(schedule);
  if (!messages.ok()) return messages.status();
  Order order{std::move(messages).value(), {}};
  Status walked = Walk(schedule, &order).run();
  if (!walked.ok()) return walked;
  return order;
}

}  // namespace braid
