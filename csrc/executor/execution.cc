// SPDX-License-Identifier: Apache-2.0
#include "executor/execution.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/copy.h"
#include "reduce/reduce.h"
#include "schedule/text.h"

namespace braid {
namespace {

size_t messages_in(const Round& round) {
  size_t count = 0;
  for (const Step& step : round) {
    if (step.op == Op::kSend || step.op == Op::kRecv) ++count;
    for (const Source& source : step.sources) count += source.is_remote() ? 1 : 0;
  }
  return count;
}

}  // namespace

Execution::Execution(std::shared_ptr<const VerifiedSchedule> schedule, Node node, Operands operands,
                     Mailbox& mailbox, uint64_t stream, Pool& pool, const ExecutionOptions& options)
    : verified_(std::move(schedule)),
      node_(node),
      program_(verified_->schedule().programs[static_cast<size_t>(node)]),
      operands_(std::move(operands)),
      layout_(verified_->schedule(), operands_, options.chunk_bytes),
      mailbox_(mailbox),
      stream_(stream),
      pool_(pool) {
  if (!program_.empty()) segments_left_ = layout_.segments();
  if (operands_.lossy) coding_.emplace(*verified_, node_, operands_, layout_, options.hosts);
  size_t most_messages = 0;
  for (const Round& round : program_) most_messages = std::max(most_messages, messages_in(round));
  const auto lanes = std::min<int64_t>(segments_left_, std::max(options.window, 1));
  lanes_.resize(static_cast<size_t>(lanes));
  for (Lane& lane : lanes_) lane.pending = std::make_unique<Pending[]>(most_messages);
  reserve_memory();
  // Messages under way use this object. If its constructor threw, the object would be gone. So catch exceptions.
  const Status thrown = caught("starting an operation", [this] {
    for (Lane& lane : lanes_) start_segment(lane);
  });
  if (thrown.ok()) return;
  mailbox_.fail_here(thrown);
  status_ = thrown;
}

void Execution::reserve_memory() {
  const bool scratch = uses_scratch(program_);
  for (Lane& lane : lanes_) {
    if (coding_) lane.messages = pool_.take(coding_->segment_bytes());
    if (scratch) lane.scratch = pool_.take(layout_.scratch_bytes());
    size_t most = 0;
    for (const Round& round : program_) {
      size_t bytes = 0;
      for (const Step& step : round) {
        if (step.op != Op::kReduce) continue;
        // The first segment has the largest chunks. Rounding can make a chunk of another segment one element
        // larger. 128 bytes cover this element and the rounding up to cache lines.
        const size_t target_bytes = layout_.write(step.target, 0, nullptr).size();
        for (const Source& source : step.sources) {
          bytes += source.is_remote() && !is_coded(source.from) ? target_bytes + 128 : 0;
        }
      }
      most = std::max(most, bytes);
    }
    if (most > 0) lane.landing = pool_.take(most);
  }
}

Tag Execution::tag(const Lane& lane, int32_t message) const {
  return {stream_, static_cast<uint64_t>(lane.segment) << 32 | static_cast<uint32_t>(message)};
}

bool Execution::advance() {
  if (segments_left_ == 0 || !status_.ok()) return true;
  bool moved = true;
  while (moved && segments_left_ > 0 && status_.ok()) {
    moved = false;
    for (Lane& lane : lanes_) {
      if (lane.active()) {
        moved |= advance_lane(lane);
      } else if (can_start()) {
        start_segment(lane);
        moved = true;
      }
    }
  }
  return segments_left_ == 0 || !status_.ok();
}

bool Execution::advance_lane(Lane& lane) {
  bool complete = false;
  if (Status failed = collect(lane, complete); !failed.ok()) {
    status_ = std::move(failed);
    return false;
  }
  if (!complete) return false;
  if (Status bad = run_local_steps(lane); !bad.ok()) {
    status_ = std::move(bad);
    return false;
  }
  ++lane.round;
  if (lane.round < program_.size()) {
    post_round(lane);
    return true;
  }
  --segments_left_;
  start_segment(lane);
  if (operands_.feed != nullptr) tell_settled();
  return true;
}

void Execution::tell_settled() const {
  int64_t first_open = next_segment_;
  for (const Lane& lane : lanes_) {
    if (lane.active()) first_open = std::min(first_open, lane.segment);
  }
  operands_.feed->settle(layout_.covered(first_open));
}

void Execution::start_segment(Lane& lane) {
  lane.round = 0;
  lane.posted = lane.finished = 0;
  if (!can_start()) {
    lane.segment = -1;
    return;
  }
  lane.segment = next_segment_++;
  lane.coded.begin(lane.messages.data());
  post_round(lane);
}

Status Execution::collect(Lane& lane, bool& complete) {
  while (lane.finished < lane.posted && lane.pending[lane.finished].request.done()) {
    const Pending& pending = lane.pending[lane.finished];
    if (!pending.request.status().ok()) {
      return {pending.request.status().code(),
              pending.request.status().message() + " (step: " + to_text(*pending.step) + ", round " +
                  std::to_string(lane.round) + ")",
              pending.request.status().rank()};
    }
    ++lane.finished;
  }
  complete = lane.finished == lane.posted;
  return {};
}

void Execution::post_receive(Lane& lane, const Step& step, Node from, int32_t message, Bytes into) {
  Pending& pending = lane.pending[lane.posted++];
  pending.step = &step;
  pending.peer = from;
  mailbox_.recv(from, tag(lane, message), into, &pending.request);
}

void Execution::post_round(Lane& lane) {
  lane.posted = lane.finished = 0;
  lane.coded.begin_round();
  const Round& round = program_[lane.round];
  size_t landing_offset = 0;
  // Receives first, so that messages land directly in their memory.
  for (size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.op != Op::kRecv && step.op != Op::kReduce) continue;
    const auto& message = verified_->facts(node_, lane.round, i).message;
    const Bytes target = layout_.write(step.target, lane.segment, lane.scratch.data());
    if (target.empty()) continue;
    if (step.op == Op::kRecv) {
      const Bytes into = is_coded(step.peer) ? coding_->landing(lane.coded, step, 0, target) : target;
      post_receive(lane, step, step.peer, message[0], into);
      continue;
    }
    for (size_t s = 0; s < step.sources.size(); ++s) {
      if (!step.sources[s].is_remote()) continue;
      if (is_coded(step.sources[s].from)) {
        const Bytes into = coding_->landing(lane.coded, step, s, target);
        post_receive(lane, step, step.sources[s].from, message[s], into);
        continue;
      }
      post_receive(lane, step, step.sources[s].from, message[s],
                   {lane.landing.data() + landing_offset, target.size()});
      landing_offset += (target.size() + 63) / 64 * 64;
    }
  }
  for (size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.op != Op::kSend) continue;
    ConstBytes bytes = layout_.read(step.target, lane.segment, lane.scratch.data());
    if (bytes.empty()) continue;
    if (is_coded(step.peer)) {
      bytes = coding_->outgoing(lane.coded, step, lane.segment, bytes);
    } else if (coding_ && coding_->is_handed_over(step)) {
      bytes = coding_->handed_over(lane.coded, step, lane.segment, bytes);
    }
    Pending& pending = lane.pending[lane.posted++];
    pending.step = &step;
    pending.peer = step.peer;
    mailbox_.send(step.peer, tag(lane, verified_->facts(node_, lane.round, i).message[0]), bytes,
                  &pending.request);
  }
}

Status Execution::run_local_steps(Lane& lane) {
  const Round& round = program_[lane.round];
  size_t landing_offset = 0;
  for (const Step& step : round) {  // decode all received messages before the first local step
    if (step.op != Op::kRecv || !is_coded(step.peer)) continue;
    const Bytes target = layout_.write(step.target, lane.segment, lane.scratch.data());
    if (Status bad = coding_->receive(lane.coded, step, target); !bad.ok()) return bad.within(to_text(step));
  }
  for (size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.op == Op::kReduce) {
      if (Status bad = run_reduce(lane, step, i, landing_offset); !bad.ok()) return bad.within(to_text(step));
    } else if (step.op == Op::kCopy) {
      const Bytes target = layout_.write(step.target, lane.segment, lane.scratch.data());
      const ConstBytes source = layout_.read(step.sources[0].ref, lane.segment, lane.scratch.data());
      if (!target.empty() && target.data() != source.data()) {
        copy_bytes(target.data(), source.data(), target.size());
      }
    }
  }
  return {};
}

Status Execution::run_reduce(Lane& lane, const Step& step, size_t index, size_t& landing_offset) {
  const Bytes target = layout_.write(step.target, lane.segment, lane.scratch.data());
  if (target.empty()) return {};
  sources_.clear();
  for (const Source& source : step.sources) {
    if (source.is_remote() && is_coded(source.from)) continue;
    if (source.is_remote()) {
      sources_.push_back(lane.landing.data() + landing_offset);
      landing_offset += (target.size() + 63) / 64 * 64;
    } else {
      sources_.push_back(layout_.read(source.ref, lane.segment, lane.scratch.data()).data());
    }
  }
  if (coding_ && coding_->is_coded(step)) {
    return coding_->reduce(lane.coded, step, lane.segment, sources_, target);
  }
  const bool completes = verified_->facts(node_, lane.round, index).completes;
  const int divisor = operands_.op == ReduceOp::kAvg && completes ? verified_->schedule().collective.ranks : 1;
  reduce(operands_.dtype, operands_.op, target.data(), sources_, target.size() / size_of(operands_.dtype),
         divisor);
  return {};
}

std::string Execution::waiting_for(size_t most) const {
  if (next_segment_ < layout_.segments() && !layout_.has_input(next_segment_)) return "its own inputs";
  std::string text;
  size_t listed = 0;
  for (const Lane& lane : lanes_) {
    for (size_t i = lane.finished; lane.active() && i < lane.posted; ++i) {
      if (lane.pending[i].request.done()) continue;
      if (listed++ == most) return text + ", ...";
      if (!text.empty()) text += ", ";
      text += to_text(*lane.pending[i].step) + " (round " + std::to_string(lane.round) + ")";
    }
  }
  return text;
}

std::vector<Node> Execution::waiting_peers() const {
  std::vector<Node> peers;
  for (const Lane& lane : lanes_) {
    for (size_t i = lane.finished; lane.active() && i < lane.posted; ++i) {
      if (!lane.pending[i].request.done()) peers.push_back(lane.pending[i].peer);
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

std::string Execution::missing_with(Node peer) const {
  size_t open = 0;
  size_t all = 0;
  const Request* first = nullptr;
  for (const Lane& lane : lanes_) {
    for (size_t i = 0; lane.active() && i < lane.posted; ++i) {
      const Pending& pending = lane.pending[i];
      if (pending.peer != peer) continue;
      ++all;
      if (i < lane.finished || pending.request.done()) continue;
      ++open;
      if (first == nullptr) first = &pending.request;
    }
  }
  if (open == 0) return "";
  const std::string why = mailbox_.missing_of(first);
  return std::to_string(open) + " of " + std::to_string(all) + " messages with it are open" +
         (why.empty() ? "" : " (" + why + ")");
}

}  // namespace braid
