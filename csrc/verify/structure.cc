// SPDX-License-Identifier: Apache-2.0
#include "verify/structure.h"

#include <algorithm>
#include <string>

#include "schedule/text.h"

namespace braid {
namespace {

Status refuse(const std::string& reason) { return {Code::kInvalidArgument, reason}; }

Status check_shares(const Schedule& schedule) {
  if (schedule.shares.empty()) return {};
  if (!is_vector(schedule.collective.kind)) return refuse("has shares, but its blocks are given");
  if (schedule.shares.size() != static_cast<size_t>(schedule.chunks)) {
    return refuse(std::to_string(schedule.shares.size()) + " shares for " + std::to_string(schedule.chunks) +
                  " chunks");
  }
  unsigned __int128 total = 0;
  for (uint64_t share : schedule.shares) total += share;
  if (total == 0) return refuse("all shares are 0");
  if (total >> 63 != 0) return refuse("the shares sum to 2^63 or more");
  return {};
}

Status check_header(const Schedule& schedule) {
  Status collective = check(schedule.collective);
  if (!collective.ok()) return collective;
  auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (schedule.algorithm.empty() || !std::all_of(schedule.algorithm.begin(), schedule.algorithm.end(), plain)) {
    return refuse("the algorithm's name must be made of a-z, 0-9 and _");
  }
  int ranks = schedule.collective.ranks;
  const size_t nodes = schedule.programs.size();
  if (nodes < static_cast<size_t>(ranks)) {
    return refuse(std::to_string(nodes) + " programs for " + std::to_string(ranks) + " ranks");
  }
  if (nodes > kMaxRanks) {
    return refuse(std::to_string(nodes) + " nodes, must be at most " + std::to_string(kMaxRanks));
  }
  // An aggregator has no block, so it would not know the size of blocks.
  if (schedule.aggregators() > 0 && !is_vector(schedule.collective.kind)) {
    return refuse("aggregators exist only in vector collectives");
  }
  if (schedule.chunks < 1 || schedule.chunks > kMaxChunks) {
    return refuse(std::to_string(schedule.chunks) + " chunks, must be between 1 and " +
                  std::to_string(kMaxChunks));
  }
  if (int64_t{schedule.nodes()} * schedule.chunks > kMaxChunksOfAllNodes) {
    return refuse("too many chunks over all nodes");
  }
  if (!is_vector(schedule.collective.kind) && schedule.chunks != ranks) {
    return refuse(std::to_string(schedule.chunks) + " chunks, must be one per rank");
  }
  return check_shares(schedule);
}

class StepCheck {
 public:
  StepCheck(const Schedule& schedule, Node node) : schedule_(schedule), node_(node) {}

  Status check(const Step& step) const {
    switch (step.op) {
      case Op::kSend:
      case Op::kRecv: return check_message(step);
      case Op::kReduce:
      case Op::kCopy: return check_local(step);
    }
    return refuse("unknown operation");
  }

 private:
  Status check_message(const Step& step) const {
    if (!step.sources.empty()) return refuse("only reduce and copy have sources");
    Status peer = check_peer(step.peer);
    if (!peer.ok()) return peer;
    return step.op == Op::kSend ? check_ref(step.target) : check_written(step.target);
  }

  Status check_local(const Step& step) const {
    if (step.peer != -1) return refuse("only send and recv have a peer");
    Status target = check_written(step.target);
    if (!target.ok()) return target;
    if (step.op == Op::kReduce) {
      if (!is_reduction(schedule_.collective.kind)) return refuse("this collective does not reduce");
      if (step.sources.size() < 2) return refuse("reduce needs two sources or more");
    } else if (step.sources.size() != 1 || step.sources[0].is_remote()) {
      return refuse("copy needs exactly one source, a local one");
    }
    for (const Source& source : step.sources) {
      Status status = check_source(step, source);
      if (!status.ok()) return status;
    }
    return {};
  }

  Status check_source(const Step& step, const Source& source) const {
    if (source.is_remote()) {
      if (!(source.ref == Ref{})) return refuse("a remote source names no chunk");
      return check_peer(source.from);
    }
    if (source.from != -1) return refuse("a local source has no sender");
    if (source.ref.count != step.target.count) return refuse("source and target differ in their number of chunks");
    return check_ref(source.ref);
  }

  Status check_peer(Node peer) const {
    if (peer < 0 || peer >= schedule_.nodes()) return refuse("there is no r" + std::to_string(peer));
    if (peer == node_) return refuse("a node cannot exchange messages with itself");
    return {};
  }

  Status check_written(const Ref& ref) const {
    if (ref.buffer == Buffer::kInput) return refuse("the input is only read");
    return check_ref(ref);
  }

  Status check_ref(const Ref& ref) const {
    int64_t exist = 0;
    switch (ref.buffer) {
      case Buffer::kInput: exist = input_chunks(schedule_.collective, schedule_.chunks, node_); break;
      case Buffer::kOutput: exist = output_chunks(schedule_.collective, schedule_.chunks, node_); break;
      case Buffer::kScratch: exist = schedule_.chunks; break;
      default: return refuse("unknown memory");
    }
    if (ref.count < 1) return refuse("a ref needs one chunk or more");
    if (ref.first < 0 || int64_t{ref.first} + ref.count > exist) {
      return refuse(to_text(ref) + " does not exist on r" + std::to_string(node_) + ", which has " +
                    std::to_string(exist) + " chunks there");
    }
    if (ref.count > 1 && !is_vector(schedule_.collective.kind)) {
      return refuse("runs of chunks exist only in vector collectives");
    }
    return {};
  }

  const Schedule& schedule_;
  Node node_;
};

}  // namespace

Status check_structure(const Schedule& schedule) {
  Status header = check_header(schedule);
  if (!header.ok())
    return header.within(std::string(name_of(schedule.collective.kind)) + "/" + schedule.algorithm);
  for (Node node = 0; node < schedule.nodes(); ++node) {
    StepCheck step_check(schedule, node);
    const Program& program = schedule.programs[node];
    for (size_t round = 0; round < program.size(); ++round) {
      for (size_t step = 0; step < program[round].size(); ++step) {
        Status status = step_check.check(program[round][step]);
        if (!status.ok()) return status.within(to_text(schedule, node, round, step));
      }
    }
  }
  return {};
}

}  // namespace braid
