// SPDX-License-Identifier: Apache-2.0
#include "communicator/group.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/interruptible_wait.h"
#include "base/log.h"
#include "communicator/rendezvous_notice.h"
#include "communicator/replan.h"
#include "communicator/tasks.h"
#include "engine/wires.h"

namespace braid {
namespace {

// How long shutdown() waits for operations that the caller started and never waited for.
constexpr milliseconds kShutdownTime{5000};
// How long shutdown() waits until the peers have been told why the group failed.
constexpr milliseconds kLastWordsTime{500};
// How long a running replan may take to notice that the group has ended.
constexpr milliseconds kReplanEnds{1000};

// Drops options.give_up: its owner may be destroyed after the rendezvous.
Options to_keep(Options options) {
  options.give_up = nullptr;
  return options;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Engine> engine,
                                                           std::shared_ptr<Store> store, Node rank, int ranks,
                                                           const std::string& name, const Options& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return Status(Code::kInvalidArgument,
                  "rank " + std::to_string(rank) + " does not exist in a group of " + std::to_string(ranks));
  }
  if (options.chunk_bytes < 0 || options.chunk_bytes % 64 != 0) {
    return Status(Code::kInvalidArgument, "chunk_bytes is " + std::to_string(options.chunk_bytes) +
                                              ", expected a positive multiple of 64, or 0");
  }
  if (options.aggregators < 0 || options.aggregators >= ranks) {
    return Status(Code::kInvalidArgument, std::to_string(options.aggregators) + " aggregators in a group of " +
                                              std::to_string(ranks) + ": expected at least one rank besides");
  }
  auto group = std::make_shared<Group>(std::static_pointer_cast<EngineImpl>(engine), rank, ranks, name, options);
  Status bad;
  const Status thrown = caught("forming a group", [&] { bad = group->rendezvous(*store, options.give_up); });
  if (!thrown.ok()) {
    group->mailbox().fail_here(thrown);  // tells the ranks that already have a wire
    bad = thrown;
  }
  if (!bad.ok()) return bad.within("rank " + std::to_string(rank) + " could not form group \"" + name + "\"");
  return std::shared_ptr<Communicator>(std::move(group));
}

Group::Group(std::shared_ptr<EngineImpl> engine, Node rank, int nodes, std::string name, const Options& options)
    : engine_(std::move(engine)),
      rank_(rank),
      nodes_(nodes),
      ranks_(nodes - options.aggregators),
      name_(std::move(name)),
      options_(to_keep(options)),
      mailbox_(rank, nodes, engine_->bell()),
      vigil_(Vigil::keep(engine_->reactor(), mailbox_, options.peer_timeout)),
      servers_(options.servers && options.await_servers >= 0
                   ? std::make_shared<StoreUntil>(options.servers, [this] { return mailbox_.has_ended(); })
                   : nullptr),
      discovery_(servers_),
      matching_(mailbox_, nodes),
      timeout_(options.timeout) {
  mailbox_.name_codecs(name_of_codec);
}

Group::~Group() {
  mailbox_.close();
  if (vigil_) vigil_->end();
  wires_.leave();  // the network thread must forget the mailbox before its destruction
}

Status Group::rendezvous(Store& store, const GiveUp& give_up) {
  give_up_ = give_up;
  const std::unique_ptr<GiveUp, void (*)(GiveUp*)> forget(&give_up_, [](GiveUp* asked) { *asked = nullptr; });
  // Fill wires_ directly: a failed rendezvous may leave channels in the mailbox, and wires_ outlives the mailbox.
  wires_.list = make_wires(*engine_, options_, rank_, nodes_, mailbox_);
  RendezvousNotice noticed(store, rank_, nodes_, name_, options_.stall_notice);
  if (Status bad = run_rendezvous(*engine_, noticed, rank_, nodes_, name_, options_, mailbox_, wires_); !bad.ok())
    return bad;
  if (options_.aggregators > 0) wires_.board.reset();  // boards serve ranks only, not aggregators
  if (Status bad = make_tuner(false, deadline_after(options_.timeout)); !bad.ok()) return bad;
  is_on_several_hosts_ = tuner()->topology().host_count() > 1;
  const bool may_change = options_.links.empty() || options_.links == "measure";
  may_replan_ = is_on_several_hosts_ && options_.aggregators == 0 && (may_change || servers_);
  static_cast<void>(seen_rates());  // drops the rates of the link benchmark
  if (!servers_) return {};
  if (may_replan_) return replan(true, deadline_after(options_.timeout));
  if (rank_ == 0)
    log(LogLevel::kWarning, "group \"" + name_ + "\" is on one host: aggregators are of no use to it");
  return {};
}

// ---- State of other ranks

bool Group::has_rung() {
  const uint32_t rings = engine_->bell().rings.load(std::memory_order_acquire);
  if (std::exchange(polled_at_, rings) == rings && has_polled_) return false;
  has_polled_ = true;
  return true;
}

void Group::announce(uint64_t sequence, const Intent& intent, bool by_mailbox) {
  if (wires_.board) wires_.board->announce(sequence, intent);
  if (by_mailbox) {
    mailbox_.begin(sequence, intent);
  } else {
    wires_.stream_word->store(sequence, std::memory_order_relaxed);
  }
}

Status Group::disagreement(uint64_t sequence, uint64_t before) const {
  if (!wires_.board) return {};
  for (uint64_t stream = sequence - std::min(before, sequence); stream <= sequence; ++stream) {
    const std::optional<Intent> mine = wires_.board->intent_of(rank_, stream);
    for (Node node = 0; mine && node < ranks_; ++node) {
      const std::optional<Intent> theirs = wires_.board->intent_of(node, stream);
      if (theirs && *theirs != *mine) return disagree(stream, rank_, *mine, node, *theirs, name_of_codec);
    }
  }
  return {};
}

std::string Group::place_of(Node node) const {
  const auto i = static_cast<size_t>(node);
  return node >= 0 && i < wires_.places.size() ? wires_.places[i] : "";
}

std::vector<Node> Group::missing(uint64_t sequence) {
  std::vector<Node> nodes;
  const std::vector<int64_t> streams = mailbox_.peer_streams();
  for (Node node = 0; node < nodes_; ++node) {
    if (node != rank_ && streams[static_cast<size_t>(node)] < static_cast<int64_t>(sequence))
      nodes.push_back(node);
  }
  return nodes;
}

// ---- Point-to-point

Result<std::shared_ptr<Work>> Group::send(Node to, uint32_t tag, ConstBytes bytes, milliseconds timeout) {
  return start_message({true, to, tag, bytes.size()}, timeout, [&](Request* request, Work*) {
    matching_.send(to, tag, bytes, request);
    return true;
  });
}

Result<std::shared_ptr<Work>> Group::recv(Node from, uint32_t tag, Bytes bytes, milliseconds timeout) {
  return start_message({false, from, tag, bytes.size()}, timeout, [&](Request* request, Work* work) {
    return matching_.recv({from, tag, bytes, request, work});
  });
}

Result<std::shared_ptr<Work>> Group::start_message(const PointToPoint& message, milliseconds timeout,
                                                   const std::function<bool(Request*, Work*)>& hand_over) {
  const Node peer = message.peer;
  const bool from_any = !message.sends && peer == kAnyNode;
  const std::string name = std::string(message.sends ? "send to " : "recv from ") +
                           (from_any ? "any rank" : "rank " + std::to_string(peer));
  if (from_any ? nodes_ == 1 : peer < 0 || peer >= nodes_ || peer == rank_) {
    return Status(Code::kInvalidArgument, name + ": rank " + std::to_string(rank_) + " of " +
                                              std::to_string(ranks_) + " can only name another rank");
  }
  std::shared_ptr<MessageTask> task;
  std::shared_ptr<Work> work;
  Status closed;
  const Status thrown = caught("starting a message", [&] {
    const std::lock_guard lock(mutex_);
    uint64_t& messages = message_counts_[{message.sends, peer, message.tag}];
    work = std::make_shared<Work>(
        [name, number = messages, tag = message.tag, bytes = message.bytes] {
          return name + " #" + std::to_string(number) + " (tag " + std::to_string(tag) + ", " +
                 std::to_string(bytes) + " bytes)";
        },
        messages);
    if (closed = open_locked(); !closed.ok()) {
      closed = closed.within(work->what());
      return;
    }
    task =
        std::make_shared<MessageTask>(shared_from_this(), message, deadline_locked(Clock::now(), timeout), work);
    ++messages;  // from here on, the peer would wait for this message
    ++open_messages_;
    task->set_matched(hand_over(task->request(), work.get()));
  });
  if (!closed.ok()) return closed;
  if (!thrown.ok()) {
    if (task) task->fail(thrown);
    return thrown;
  }
  if (take_turn(*task, false) == Task::Step::kDone) return work;
  if (Status bad = engine_->progress().add(task); !bad.ok()) {
    task->fail(bad);
    return bad;
  }
  return work;
}

bool Group::match(uint32_t tag, const Request* request, Status* lost) {
  const std::lock_guard lock(mutex_);
  return matching_.match(tag, request, lost);
}

void Group::forget(uint32_t tag, const Request* request) {
  const std::lock_guard lock(mutex_);
  matching_.forget(tag, request);
}

void Group::message_ended() {
  const std::lock_guard lock(mutex_);
  --open_messages_;
  ended_.notify_all();
}

// ---- State

void Group::set_timeout(milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

milliseconds Group::timeout() const {
  const std::lock_guard lock(mutex_);
  return timeout_;
}

uint64_t Group::sequence() const {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

void Group::abort(const std::string& reason) {
  if (const auto with_aggregators = aggregator_group()) with_aggregators->abort(reason);
  mailbox_.fail({Code::kAborted, "rank " + std::to_string(rank_) + " aborted the group: " + reason, rank_});
}

void Group::shutdown(const GiveUp& give_up) {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
    static_cast<void>(wait_looking_up(ended_, lock, deadline_after(kShutdownTime), give_up, [this] {
      return queue_.empty() && !inline_running_ && open_messages_ == 0;
    }));
  }
  if (const auto with_aggregators = aggregator_group()) with_aggregators->shutdown(give_up);
  shut_down_retired();
  mailbox_.close();
  {
    std::unique_lock lock(mutex_);  // a running replan and open messages see the closed mailbox and end
    ended_.wait_for(lock, kReplanEnds, [this] { return queue_.empty() && open_messages_ == 0; });
  }
  wires_.leave();
  wires_.wait_for_last_words(deadline_after(kLastWordsTime));
}

Status Group::failure() const { return mailbox_.failure(); }

}  // namespace braid
