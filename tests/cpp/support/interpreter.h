// SPDX-License-Identifier: Apache-2.0
// Executes schedules on numbers, straight from the rules in schedule.h and sharing no code with the verifier: what
// the verifier accepts is checked against this. It tries the freedoms that a transport has.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "schedule/schedule.h"

namespace braid::testing {

struct Mode {
  bool in_place = false;   // output and input in the same memory, where callers may do that
  bool late = false;       // the receiver reads the sender's memory when it takes the message
  bool backwards = false;  // the last node, and the messages from the last peers, go first
};

inline const std::vector<Mode>& all_modes() {
  static const std::vector<Mode> modes = {{false, false, false}, {false, true, false}, {false, true, true},
                                          {true, false, false},  {true, true, false},  {true, true, true}};
  return modes;
}

template <class T>
class Interpreter {
 public:
  using Chunk = std::vector<T>;
  // What `node` has in chunk `chunk` of its input.
  using InputOf = std::function<Chunk(Node node, int chunk)>;

  Interpreter(const Schedule& schedule, Mode mode, const InputOf& input_of)
      : schedule_(schedule), mode_(mode), nodes_(schedule.programs.size()) {
    for (Node node = 0; node < schedule.collective.ranks; ++node) {
      int count = input_chunks(schedule.collective, schedule.chunks, node);
      for (int chunk = 0; chunk < count; ++chunk) {
        nodes_[node].cells[{Buffer::kInput, chunk}] = input_of(node, chunk);
      }
    }
  }

  // False when the nodes wait for each other forever, or a step combines chunks of different sizes.
  bool run() {
    bool moved = true;
    while (moved && !broken_) {
      moved = false;
      for (Node k = 0; k < static_cast<Node>(nodes_.size()); ++k) {
        Node node = mode_.backwards ? static_cast<Node>(nodes_.size()) - 1 - k : k;
        moved = poll(node) || moved;
      }
    }
    for (size_t node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].round < schedule_.programs[node].size()) return false;
    }
    return !broken_;
  }

  const Chunk& output(Node node, int chunk) { return cell(node, Buffer::kOutput, chunk); }

 private:
  using Place = std::pair<Buffer, int>;
  struct Packet {
    Node node = 0;
    Ref what;
    std::vector<Chunk> content;
    bool taken = false;
  };
  struct Take {
    Node from = 0;
    size_t step = 0;
    int source = -1;
    bool done = false;
  };
  struct State {
    std::map<Place, Chunk> cells;
    size_t round = 0;
    bool entered = false;
    std::vector<std::shared_ptr<Packet>> sent;
    std::vector<Take> takes;
    std::map<std::pair<size_t, int>, std::vector<Chunk>> landed;  // by step and source
  };

  Chunk& cell(Node node, Buffer buffer, int chunk) {
    const Collective& c = schedule_.collective;
    if (mode_.in_place && buffer == Buffer::kOutput) {
      auto& cells = nodes_[node].cells;
      bool own = chunk == node && (!has_root(c.kind) || node == c.root);
      if (is_vector(c.kind)) {
        if (cells.count({Buffer::kInput, chunk}) != 0) buffer = Buffer::kInput;
      } else if ((c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kGather) && own) {
        return cells[{Buffer::kInput, 0}];
      } else if (c.kind == CollectiveKind::kReduceScatter ||
                 (c.kind == CollectiveKind::kScatter && node == c.root)) {
        return cells[{Buffer::kInput, node}];
      }
    }
    return nodes_[node].cells[{buffer, chunk}];
  }

  std::vector<Chunk> read(Node node, const Ref& ref) {
    std::vector<Chunk> content;
    for (int k = 0; k < ref.count; ++k) content.push_back(cell(node, ref.buffer, ref.first + k));
    return content;
  }

  void write(Node node, const Ref& ref, const std::vector<Chunk>& content) {
    if (content.size() != static_cast<size_t>(ref.count)) {
      broken_ = true;
      return;
    }
    for (int k = 0; k < ref.count; ++k) cell(node, ref.buffer, ref.first + k) = content[k];
  }

  void enter(Node node) {
    State& state = nodes_[node];
    state.entered = true;
    state.sent.clear();
    state.takes.clear();
    state.landed.clear();
    const Round& round = schedule_.programs[node][state.round];
    for (size_t index = 0; index < round.size(); ++index) {
      const Step& step = round[index];
      if (step.op == Op::kSend) {
        state.sent.push_back(std::make_shared<Packet>(Packet{node, step.target, read(node, step.target)}));
        wires_[{node, step.peer}].push_back(state.sent.back());
      }
      if (step.op == Op::kRecv) state.takes.push_back({step.peer, index, -1});
      if (step.op != Op::kReduce) continue;
      for (size_t source = 0; source < step.sources.size(); ++source) {
        if (!step.sources[source].is_remote()) continue;
        state.takes.push_back({step.sources[source].from, index, static_cast<int>(source)});
      }
    }
    if (!mode_.backwards) return;
    std::stable_sort(state.takes.begin(), state.takes.end(),
                     [](const Take& a, const Take& b) { return a.from > b.from; });
  }

  bool poll(Node node) {
    State& state = nodes_[node];
    if (state.round == schedule_.programs[node].size()) return false;
    bool moved = !state.entered;
    if (!state.entered) enter(node);
    bool complete = true;
    for (Take& take : state.takes) {
      if (take.done) continue;
      auto& wire = wires_[{take.from, node}];
      if (wire.empty()) {
        complete = false;
        continue;
      }
      Packet& packet = *wire.front();
      std::vector<Chunk> content = mode_.late ? read(packet.node, packet.what) : packet.content;
      const Step& step = schedule_.programs[node][state.round][take.step];
      if (take.source < 0) {
        write(node, step.target, content);
      } else {
        state.landed[{take.step, take.source}] = std::move(content);
      }
      packet.taken = true;
      wire.pop_front();
      take.done = moved = true;
    }
    for (const auto& packet : state.sent) complete = complete && packet->taken;
    if (!complete || broken_) return moved;
    for (size_t index = 0; index < schedule_.programs[node][state.round].size(); ++index) run_local(node, index);
    ++state.round;
    state.entered = false;
    return true;
  }

  void run_local(Node node, size_t index) {
    State& state = nodes_[node];
    const Step& step = schedule_.programs[node][state.round][index];
    if (step.op == Op::kCopy) write(node, step.target, read(node, step.sources[0].ref));
    if (step.op != Op::kReduce) return;
    std::vector<Chunk> total;
    for (size_t source = 0; source < step.sources.size(); ++source) {
      std::vector<Chunk> more = step.sources[source].is_remote() ? state.landed[{index, static_cast<int>(source)}]
                                                                 : read(node, step.sources[source].ref);
      if (source == 0) {
        total = std::move(more);
        continue;
      }
      for (size_t k = 0; k < total.size(); ++k) {
        if (more.size() != total.size() || more[k].size() != total[k].size()) {
          broken_ = true;
          return;
        }
        for (size_t e = 0; e < total[k].size(); ++e) total[k][e] += more[k][e];
      }
    }
    write(node, step.target, total);
  }

  const Schedule& schedule_;
  Mode mode_;
  std::vector<State> nodes_;
  std::map<std::pair<Node, Node>, std::deque<std::shared_ptr<Packet>>> wires_;
  bool broken_ = false;
};

}  // namespace braid::testing
