// SPDX-License-Identifier: Apache-2.0
#include "group/collective_task.h"

#include <utility>

#include "base/caught.h"
#include "group/signature.h"

namespace braid {
namespace {

// How many polls without progress lie between two comparisons of signatures with the other ranks.
constexpr unsigned kLookEvery = 64;

}  // namespace

CollectiveTask::CollectiveTask(TaskContext& group, uint64_t sequence, Operation operation, const Route& route,
                               Clock::time_point started, Deadline deadline)
    : group_(group),
      sequence_(sequence),
      operation_(std::move(operation)),
      bytes_(memory_bytes(operation_)),
      route_(&route),
      signature_(signature_for(operation_, route)),
      started_(started),
      deadline_(deadline) {}

Work::Describe description_of(const Operation& operation, size_t bytes, const Route& route, uint64_t sequence) {
  return [sequence, kind = operation.kind, op = operation.op, dtype = operation.dtype, root = operation.root,
          bytes, lossy = operation.lossy, schedule = route.schedule] {
    std::string text = std::string(name_of(kind)) + " #" + std::to_string(sequence);
    if (kind == CollectiveKind::kBarrier) return text;
    text += " (";
    if (is_reduction(kind)) text += std::string(name_of(op)) + ", ";
    text += std::string(name_of(dtype)) + ", " + std::to_string(bytes) + " bytes, ";
    if (has_root(kind)) text += "root " + std::to_string(root) + ", ";
    if (lossy) text += to_text(lossy->codec) + ", ";
    return text + schedule->schedule().algorithm + ")";
  };
}

void CollectiveTask::make_work() {
  if (!work_)
    work_ = std::make_shared<Work>(description_of(operation_, bytes_, *route_, sequence_), sequence_, started_);
}

Status CollectiveTask::begin() {
  if (!begun_) begun_ = Clock::now();
  stall_.begin(*begun_, group_.member.options.stall_notice);
  if (route_->epoch != group_.choice.epoch()) {  // all ranks have planned anew since start()
    const auto route = group_.choice.route_for(operation_);
    if (!route.ok()) return route.status();
    route_ = route.value();
    signature_ = signature_for(operation_, *route_);
  }
  if (operation_.kind == CollectiveKind::kBarrier) {
    // Every chunk gets one byte. Without bytes no message would move, and no rank would wait.
    token_.resize(static_cast<size_t>(route_->schedule->schedule().chunks));
    operation_.inputs = {token_};
    operation_.outputs = {token_};
  }
  if (group_.aggregators.may_form()) operation_.feed = nullptr;  // see lacks_inputs(): all inputs are there
  group_.peers.announce(sequence_, signature_, !route_->board.possible);
  aggregated_ = group_.aggregators.all_reduce_for(operation_, sequence_);
  if (aggregated_) {
    running_ = aggregated_.get();
  } else {
    begin_alone();
  }
  return {};
}

void CollectiveTask::begin_alone() {
  Operands operands{operation_.dtype,
                    operation_.op,
                    std::move(operation_.inputs),
                    std::move(operation_.outputs),
                    operation_.bytes,
                    operation_.lossy,
                    operation_.feed};
  if (operands.feed != nullptr) operands.feed->listen([&bell = group_.member.engine->bell()] { ring(bell); });
  if (operands.lossy) operands.lossy->seed += static_cast<uint32_t>(sequence_) * 0x9e3779b9u;
  if (route_->board.possible) {
    running_.emplace<BoardExecution>(route_->schedule, route_->board, group_.member.rank, std::move(operands),
                                     *group_.wires.board, digest_of(sequence_, signature_),
                                     group_.member.engine->pool(), group_.workspace, has_posted_);
  } else {
    const ExecutionOptions options{route_->chunk_bytes, group_.member.options.window, group_.wires.hosts};
    running_.emplace<Execution>(route_->schedule, group_.member.rank, std::move(operands), group_.mailbox,
                                sequence_, group_.member.engine->pool(), options);
  }
}

bool CollectiveTask::lacks_inputs() const {
  return operation_.feed != nullptr && group_.aggregators.may_form() && operation_.feed->arrived() != Feed::kAll;
}

Task::Step CollectiveTask::advance(bool before_sleep) {
  if (!begun()) {
    if (group_.mailbox.has_ended()) return finish(group_.mailbox.ending());
    if (lacks_inputs()) {
      if (Clock::now() < deadline_) return Step::kAfar;
      return finish({Code::kTimeout, "timed out while its own inputs were on their way to the host"});
    }
    if (Status bad = begin(); !bad.ok()) return finish(std::move(bad));
  }
  if (auto** aggregated = std::get_if<AggregatedAllReduce*>(&running_)) return advance_aggregated(**aggregated);
  if (auto* on_boards = std::get_if<BoardExecution>(&running_)) return advance_on_boards(*on_boards, before_sleep);
  // A bell rings after every event that a mailbox can handle. So do not poll without a ring: a poll takes the
  // mutex that the network thread needs.
  const bool rung = group_.peers.has_rung();
  const bool moved = (rung || before_sleep) && group_.mailbox.poll();
  auto& execution = std::get<Execution>(running_);
  if (execution.advance()) return finish(execution.status());
  if (!moved && (before_sleep || ++idle_ % kLookEvery == 0)) {
    if (Status other = group_.peers.disagreement(sequence_); !other.ok()) group_.mailbox.fail(other);
  }
  return wait_or_give_up(moved);
}

Task::Step CollectiveTask::advance_aggregated(AggregatedAllReduce& aggregated) {
  const bool moved = group_.mailbox.poll();
  if (group_.mailbox.has_ended()) {
    const Status why = group_.mailbox.ending();
    return aggregated.abandon(why) ? finish(why, missing_) : Step::kIdle;
  }
  if (!aggregated.advance()) return wait_or_give_up(moved);
  if (!aggregated.status().ok()) return finish(aggregated.status());
  if (aggregated.carried()) return finish({});
  group_.aggregators.lose(aggregated.trouble());
  operation_ = aggregated.operation();
  begin_alone();
  return Step::kMoved;
}

Task::Step CollectiveTask::advance_on_boards(BoardExecution& execution, bool before_sleep) {
  // Read before advance(): messages that a peer posted before it was lost still count.
  const bool had_lost = group_.mailbox.has_lost();
  if (execution.advance()) {
    Status status = execution.status();
    if (status.code() == Code::kMismatch) {
      // The ranks may have disagreed on an earlier operation: an operation without bytes waits for no rank.
      if (Status other = group_.peers.disagreement(sequence_, shm::kSignatures); !other.ok())
        status = std::move(other);
    }
    if (status.code() == Code::kPeerLost) {
      // A peer that takes back lent memory has sent the reason of its failure before.
      group_.mailbox.poll();
      if (group_.mailbox.has_ended()) status = group_.mailbox.ending();
    }
    return finish(std::move(status));
  }
  if (execution.moved()) {
    idle_ = 0;
    return Step::kMoved;
  }
  ++idle_;
  // A bell rings after every event that the boards do not show.
  const bool rung = group_.peers.has_rung();
  if (rung) group_.mailbox.poll();
  if (before_sleep) {
    group_.mailbox.need(execution.waiting_peers());
    has_needed_ = true;
  }
  if (rung || before_sleep || idle_ % kLookEvery == 0) {
    if (Status bad = look_around(execution, had_lost); !bad.ok()) return finish(std::move(bad));
    return wait_or_give_up(rung);
  }
  return Step::kIdle;
}

Status CollectiveTask::look_around(const BoardExecution& execution, bool had_lost) {
  Mailbox& mailbox = group_.mailbox;
  if (mailbox.has_ended()) return mailbox.ending();
  if (had_lost) {
    for (const Node peer : execution.waiting_peers()) {
      if (Status lost = mailbox.look_for_message(peer, {}).lost; !lost.ok()) {
        return {lost.code(), lost.message() + " (waiting for: " + execution.waiting_for(1) + ")", peer};
      }
    }
  }
  return group_.peers.disagreement(sequence_);
}

Task::Step CollectiveTask::wait_or_give_up(bool moved) {
  const auto now = Clock::now();
  if (now >= stall_.due() && !asked_) stall_.look(group_.stalls, now, view());
  if (!asked_ && now >= deadline_) {
    group_.mailbox.ask();
    asked_ = true;
    answers_due_ = now + kAnswerTime;
  } else if (asked_ && now >= answers_due_) {
    std::vector<Node> missing;
    Status late = timed_out(&missing);
    if (auto** aggregated = std::get_if<AggregatedAllReduce*>(&running_)) {
      group_.mailbox.fail(late);
      missing_ = missing;
      if (!(*aggregated)->abandon(late)) return Step::kIdle;
    }
    return finish(std::move(late), std::move(missing));
  }
  if (moved) return Step::kMoved;
  return group_.choice.is_on_several_hosts() ? Step::kAfar : Step::kIdle;
}

std::string CollectiveTask::waiting_for() const {
  if (std::holds_alternative<AggregatedAllReduce*>(running_))
    return "the aggregators and what other ranks say of them";
  if (const auto* on_boards = std::get_if<BoardExecution>(&running_)) return on_boards->waiting_for(3);
  return std::get<Execution>(running_).waiting_for(3);
}

std::vector<Node> CollectiveTask::waiting_peers() const {
  if (const auto* on_boards = std::get_if<BoardExecution>(&running_)) return on_boards->waiting_peers();
  if (const auto* by_mailbox = std::get_if<Execution>(&running_)) return by_mailbox->waiting_peers();
  return {};
}

WaitView CollectiveTask::view() {
  make_work();  // the wait will be shown, and that needs a work
  const auto missing = [this](Node peer) {
    const auto* on_boards = std::get_if<BoardExecution>(&running_);
    const auto* by_mailbox = std::get_if<Execution>(&running_);
    if (peer == kAnyNode || (on_boards == nullptr && by_mailbox == nullptr))
      return "waiting for: " + waiting_for();
    return on_boards != nullptr ? on_boards->missing_with(peer) : by_mailbox->missing_with(peer);
  };
  return {work_, sequence_, waiting_peers(), missing};
}

Status CollectiveTask::timed_out(std::vector<Node>* missing) const {
  std::string text = "rank " + std::to_string(group_.member.rank) + " timed out after its timeout of " +
                     seconds_text(deadline_ - started_);
  *missing = group_.peers.missing(sequence_);
  if (!missing->empty()) {
    text += "; not there yet:";
    for (const Node node : *missing) text += " " + rank_text(node);
  }
  text += "; waiting for: " + waiting_for();
  return {Code::kTimeout, text, missing->size() == 1 ? missing->front() : kAnyNode};
}

Task::Step CollectiveTask::finish(Status status, std::vector<Node> missing) {
  if (!status.ok()) group_.mailbox.fail(status);  // before the execution is destroyed: messages use its memory
  if (!route_->board.possible) group_.mailbox.end_stream(sequence_);
  if (has_needed_) group_.mailbox.need({});
  const auto now = Clock::now();
  if (status.ok()) record(now);
  stall_.end(group_.stalls, work_, status.ok());
  if (operation_.feed != nullptr) operation_.feed->listen(nullptr);
  running_.emplace<std::monostate>();
  aggregated_.reset();
  if (!status.ok()) status = status.within(what() + " failed");
  if (work_) {
    work_->finish(std::move(status), std::move(missing), now);
  } else {
    outcome_ = std::move(status);
  }
  return Step::kDone;
}

bool CollectiveTask::fail(const Status& why) {
  group_.mailbox.fail_here(why);  // before the execution is destroyed: messages use its memory
  if (auto** aggregated = std::get_if<AggregatedAllReduce*>(&running_)) {
    bool over = false;
    if (!caught("leaving the aggregators", [&] { over = (*aggregated)->abandon(why); }).ok() || !over)
      return false;
  }
  if (operation_.feed != nullptr) operation_.feed->listen(nullptr);
  running_.emplace<std::monostate>();
  aggregated_.reset();
  Status named = why;
  static_cast<void>(caught("naming an operation", [&] { named = why.within(what() + " failed"); }));
  if (work_) {
    work_->finish(named);
  } else {
    outcome_ = named;
  }
  return true;
}

void CollectiveTask::record(Clock::time_point now) {
  Statistics::Row& row =
      std::holds_alternative<AggregatedAllReduce*>(running_) ? group_.aggregators.counters() : *route_->counters;
  group_.statistics.record(row, bytes_, std::chrono::duration<double>(now - *begun_).count());
}

}  // namespace braid
