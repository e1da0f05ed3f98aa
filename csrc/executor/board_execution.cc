// SPDX-License-Identifier: Apache-2.0
#include "executor/board_execution.h"

#include <algorithm>
#include <utility>

#include "base/cache.h"
#include "base/copy.h"
#include "reduce/reduce.h"
#include "schedule/text.h"

namespace braid {
namespace {

// How often to look at a notice before returning to the caller. A return and a new call take about ten times as
// long.
constexpr int kLooks = 32;
// Bytes of lent messages to copy before other operations of the process get their turn; about a millisecond.
constexpr size_t kReadAtOnce = size_t{8} << 20;

}  // namespace

BoardExecution::BoardExecution(std::shared_ptr<const VerifiedSchedule> schedule, const BoardPlan& plan, Node node,
                               Operands operands, shm::Board& board, uint64_t digest, Pool& pool,
                               BoardWorkspace& workspace, bool has_posted)
    : verified_(std::move(schedule)),
      plan_(plan),
      node_(node),
      program_(verified_->schedule().programs[static_cast<size_t>(node)]),
      operands_(std::move(operands)),
      layout_(verified_->schedule(), operands_, plan.chunk_bytes, plan.lend_from),
      board_(board),
      digest_(digest),
      posting_(!has_posted),
      bounced_(workspace.bounced),
      awaited_(workspace.awaited),
      sources_(workspace.sources) {
  bounced_.clear();
  const auto rounds = static_cast<int64_t>(program_.size());
  if (layout_.segments() == 0 || rounds == 0) return;
  turns_ = (layout_.segments() - 1) * plan_.stride + rounds;
  if (plan_.uses_scratch) {
    const int64_t at_once = std::min(layout_.segments(), (rounds + plan_.stride - 1) / plan_.stride);
    for (int64_t i = 0; i < at_once; ++i) scratch_.push_back(pool.take(layout_.scratch_bytes()));
  }
  size_t written = 0;
  for (const Bytes& output : operands_.outputs) written += output.size();
  const bool all_write = verified_->schedule().collective.kind != CollectiveKind::kGather;
  if (all_write) written *= static_cast<size_t>(board_.ranks());
  streams_ = plan_.moves_only && written >= shared_cache_bytes();
  segment_ = oldest();
  board_.begin_round();
}

int64_t BoardExecution::oldest() const {
  const auto rounds = static_cast<int64_t>(program_.size());
  return turn_ < rounds ? 0 : (turn_ - rounds) / plan_.stride + 1;
}

int64_t BoardExecution::newest() const { return std::min(turn_ / plan_.stride, layout_.segments() - 1); }

const Round& BoardExecution::round_of(int64_t segment) const { return program_[round_index(segment)]; }

std::byte* BoardExecution::scratch_of(int64_t segment) const {
  return scratch_.empty() ? nullptr : scratch_[static_cast<size_t>(segment) % scratch_.size()].data();
}

bool BoardExecution::advance() {
  moved_ = false;
  while (turn_ < turns_ && status_.ok()) {
    if (posting_ ? !post_turn() : !receive_turn()) break;
    if (!posting_) {
      posting_ = true;
      ++turn_;
      // Lent memory is not settled before the end: peers read it.
      if (operands_.feed != nullptr && !lent_) operands_.feed->settle(layout_.covered(oldest()));
      board_.begin_round();
    } else {
      posting_ = false;
      if (lent_) board_.wake();  // so that readers start now, not after this rank has read its own lent messages
    }
    segment_ = oldest();
    step_ = 0;
    bounced_.clear();
  }
  if (moved_) board_.wake();
  const bool ended = !status_.ok() || (turn_ == turns_ && settled());
  if (ended && streams_) end_of_stream();
  return ended;
}

bool BoardExecution::settled() const {
  for (Node node = 0; lent_ && node < board_.ranks(); ++node) {
    if (node != node_ && !board_.has_taken_all(node)) return false;
  }
  return true;
}

// ---- Posting messages

bool BoardExecution::post_turn() {
  for (; segment_ <= newest(); ++segment_, step_ = 0, bounced_.clear()) {
    if (operands_.feed != nullptr && lacks_input()) return false;
    const Round& round = round_of(segment_);
    for (; step_ < round.size(); ++step_) {
      if (round[step_].op == Op::kSend && !post(round[step_])) return false;
    }
  }
  return true;
}

bool BoardExecution::post(const Step& step) {
  const ConstBytes bytes = layout_.read(step.target, segment_, scratch_of(segment_));
  if (bytes.empty()) return true;
  if (lends() && bytes.size() > plan_.chunk_bytes && layout_.is_whole(step.target)) {
    if (!board_.lend(step.peer, digest_, bytes)) return false;
    lent_ = moved_ = true;
    return true;
  }
  uint32_t place = shm::kInline;
  if (bytes.size() > shm::kInlineBytes) {
    const auto same =
        std::find_if(bounced_.begin(), bounced_.end(), [&](const Bounced& s) { return s.ref == step.target; });
    if (same != bounced_.end()) {
      place = same->place;
    } else {
      const std::optional<uint32_t> room = board_.bounce(bytes);
      if (!room) {
        status_ = board_.refusal();
        return false;
      }
      place = *room;
      bounced_.push_back({step.target, place});
    }
  }
  if (!board_.post(step.peer, digest_, bytes, place)) return false;
  moved_ = true;
  return true;
}

// ---- Receiving messages

bool BoardExecution::receive_turn() {
  for (; segment_ <= newest(); ++segment_) {
    if (!awaiting_) await_round();
    if (!collect()) return false;
    if (!read_lent()) return false;
    run_round();
    for (const Awaited& message : awaited_) board_.take(message.from, 1);
    awaiting_ = false;
    moved_ = true;
  }
  return true;
}

// Lists the round's messages in the order of the steps. Their senders post them in the same order.
void BoardExecution::await_round() {
  awaited_.clear();
  collected_ = 0;
  read_ = 0;
  read_bytes_ = 0;
  awaiting_ = true;
  const auto await = [&](const Step& step, Node from) {
    size_t ahead = 0;
    for (const Awaited& earlier : awaited_) ahead += earlier.from == from ? 1 : 0;
    awaited_.push_back({&step, from, ahead, {}});
  };
  for (const Step& step : round_of(segment_)) {
    if (step.op != Op::kRecv && step.op != Op::kReduce) continue;
    if (layout_.write(step.target, segment_, scratch_of(segment_)).empty()) continue;
    if (step.op == Op::kRecv) await(step, step.peer);
    for (const Source& source : step.sources) {
      if (source.is_remote()) await(step, source.from);
    }
  }
}

bool BoardExecution::collect() {
  for (; collected_ < awaited_.size(); ++collected_) {
    Awaited& message = awaited_[collected_];
    bool has_come = board_.has_come(message.from, message.ahead);
    for (int look = 1; look < kLooks && !has_come; ++look) has_come = board_.has_come(message.from, message.ahead);
    if (!has_come) return false;
    const size_t bytes = layout_.write(message.step->target, segment_, scratch_of(segment_)).size();
    const auto posted = board_.open(message.from, message.ahead, digest_, bytes);
    const bool misplaced = posted.ok() && posted.value().here == nullptr && !lends();
    if (!posted.ok() || misplaced) {
      const Status bad =
          misplaced
              ? Status(Code::kMismatch, "a message was lent that must go through the bounce buffer", message.from)
              : posted.status();
      status_ = {bad.code(),
                 bad.message() + " (step: " + to_text(*message.step) + ", round " +
                     std::to_string(round_index(segment_)) + ")",
                 bad.rank()};
      return false;
    }
    message.posted = posted.value();
  }
  return true;
}

bool BoardExecution::read_lent() {
  size_t left = kReadAtOnce;
  for (; read_ < awaited_.size(); ++read_, read_bytes_ = 0) {
    const Awaited& message = awaited_[read_];
    if (message.posted.here != nullptr) continue;
    const Bytes target = layout_.write(message.step->target, segment_, scratch_of(segment_)).subspan(read_bytes_);
    const size_t now = std::min(left, target.size());
    status_ = board_.read(message.from, message.posted.there + read_bytes_, target.first(now));
    if (!status_.ok()) return false;
    moved_ = true;
    read_bytes_ += now;
    left -= now;
    if (now < target.size()) return false;
  }
  return true;
}

// Takes received messages first, then runs the local steps: the order within a round.
void BoardExecution::run_round() {
  for (const Awaited& message : awaited_) {
    if (message.step->op != Op::kRecv) continue;
    const Bytes target = layout_.write(message.step->target, segment_, scratch_of(segment_));
    if (message.posted.here != nullptr) copy(target, message.posted.here);
  }
  const Round& round = round_of(segment_);
  size_t next_message = 0;
  for (size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.op == Op::kReduce) {
      run_reduce(step, i, next_message);
    } else if (step.op == Op::kCopy) {
      const Bytes target = layout_.write(step.target, segment_, scratch_of(segment_));
      const ConstBytes source = layout_.read(step.sources[0].ref, segment_, scratch_of(segment_));
      if (!target.empty() && target.data() != source.data()) copy(target, source.data());
    }
  }
}

void BoardExecution::copy(Bytes target, const std::byte* source) const {
  (streams_ ? stream_bytes : copy_bytes)(target.data(), source, target.size());
}

void BoardExecution::run_reduce(const Step& step, size_t index, size_t& next_message) {
  const Bytes target = layout_.write(step.target, segment_, scratch_of(segment_));
  if (target.empty()) return;
  sources_.clear();
  for (const Source& source : step.sources) {
    if (source.is_remote()) {
      while (awaited_[next_message].step != &step) ++next_message;
      sources_.push_back(awaited_[next_message++].posted.here);
    } else {
      sources_.push_back(layout_.read(source.ref, segment_, scratch_of(segment_)).data());
    }
  }
  const bool completes = verified_->facts(node_, round_index(segment_), index).completes;
  const int divisor = operands_.op == ReduceOp::kAvg && completes ? verified_->schedule().collective.ranks : 1;
  reduce(operands_.dtype, operands_.op, target.data(), sources_, target.size() / size_of(operands_.dtype),
         divisor);
}

// ---- Describing waits

std::string BoardExecution::waiting_for(size_t most) const {
  if (turn_ == turns_) {
    std::string ranks;
    for (const Node peer : waiting_peers()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(peer);
    return "rank " + ranks + " to read what was lent";
  }
  if (posting_) return lacks_input() ? "its own inputs" : "room on the board";
  std::string text;
  for (size_t i = collected_; awaiting_ && i < awaited_.size(); ++i) {
    if (i - collected_ == most) return text + ", ...";
    if (!text.empty()) text += ", ";
    text += to_text(*awaited_[i].step) + " (round " + std::to_string(round_index(segment_)) + ")";
  }
  return text;
}

std::vector<Node> BoardExecution::waiting_peers() const {
  std::vector<Node> peers;
  if (turn_ < turns_ && lacks_input()) return peers;
  if (posting_) {
    for (Node node = 0; node < board_.ranks(); ++node) {
      if (node != node_ && !board_.has_taken_all(node)) peers.push_back(node);
    }
    return peers;
  }
  for (size_t i = collected_; awaiting_ && i < awaited_.size(); ++i) {
    if (!board_.has_come(awaited_[i].from, awaited_[i].ahead)) peers.push_back(awaited_[i].from);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

std::string BoardExecution::missing_with(Node peer) const {
  if (posting_ || turn_ == turns_) {
    return board_.has_taken_all(peer) ? "" : "it has not taken all that was posted for it";
  }
  size_t missing = 0;
  size_t all = 0;
  for (size_t i = 0; awaiting_ && i < awaited_.size(); ++i) {
    if (awaited_[i].from != peer) continue;
    ++all;
    if (i >= collected_ && !board_.has_come(peer, awaited_[i].ahead)) ++missing;
  }
  if (missing == 0) return "";
  return std::to_string(missing) + " of " + std::to_string(all) + " messages from it are missing";
}

}  // namespace braid
