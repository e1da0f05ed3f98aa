// SPDX-License-Identifier: Apache-2.0
#include "group/group.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/interruptible_wait.h"
#include "base/log.h"
#include "engine/wires.h"
#include "group/rendezvous_notice.h"

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
  auto made = Group::form(std::static_pointer_cast<EngineImpl>(engine), *store, rank, ranks, name, options);
  if (!made.ok()) return made.status();
  return std::shared_ptr<Communicator>(std::move(made).value());
}

Result<std::shared_ptr<Group>> Group::form(std::shared_ptr<EngineImpl> engine, Store& store, Node rank, int nodes,
                                           const std::string& name, const Options& options) {
  auto group = std::make_shared<Group>(
      Member{std::move(engine), rank, nodes, nodes - options.aggregators, name, to_keep(options)});
  Status bad;
  const Status thrown = caught("forming a group", [&] { bad = group->rendezvous(store, options.give_up); });
  if (!thrown.ok()) {
    group->mailbox_.fail_here(thrown);  // tells the ranks that already have a wire
    bad = thrown;
  }
  if (!bad.ok()) return bad.within("rank " + std::to_string(rank) + " could not form group \"" + name + "\"");
  return group;
}

Group::Group(Member member)
    : member_(std::move(member)),
      mailbox_(member_.rank, member_.nodes, member_.engine->bell()),
      vigil_(Vigil::keep(member_.engine->reactor(), mailbox_, member_.options.peer_timeout)),
      timeout_(member_.options.timeout),
      peers_(member_, wires_, mailbox_),
      stalls_(member_, mailbox_, peers_),
      choice_(member_, wires_, mailbox_, statistics_),
      aggregators_(member_, mailbox_, statistics_, timeout_, home_of_aggregators()),
      replanner_(member_, wires_, mailbox_, choice_, aggregators_),
      messages_(member_, timeout_, mailbox_, statistics_, stalls_),
      context_{member_, wires_, mailbox_, statistics_, peers_, stalls_, choice_, aggregators_} {
  mailbox_.name_codecs(name_of_codec);
}

Group::~Group() {
  mailbox_.close();
  if (vigil_) vigil_->end();
  wires_.leave();  // the network thread must forget the mailbox before its destruction
}

AggregatorGroup::Home Group::home_of_aggregators() {
  AggregatorGroup::Home home;
  home.form = [this](const std::shared_ptr<Store>& store, int nodes, const std::string& name,
                     const Options& options) -> Result<std::shared_ptr<MeasuredGroup>> {
    auto made = form(member_.engine, *store, member_.rank, nodes, name, options);
    if (!made.ok()) return made.status();
    return std::shared_ptr<MeasuredGroup>(std::move(made).value());
  };
  home.alone = [this](DType dtype, ReduceOp op, int64_t bytes) {
    return AggregatorGroup::Alone{choice_.predicted_s(dtype, op, bytes),
                                  choice_.tuner()->topology().between_hosts().alpha_s};
  };
  home.changed = [this] { replanner_.traffic_changed(); };
  return home;
}

Status Group::rendezvous(Store& store, const GiveUp& give_up) {
  // Fill wires_ directly: a failed rendezvous may leave channels in the mailbox, and wires_ outlives the mailbox.
  wires_.list = make_wires(*member_.engine, member_.options, member_.rank, member_.nodes, mailbox_);
  RendezvousNotice noticed(store, member_.rank, member_.nodes, member_.name, member_.options.stall_notice);
  if (Status bad = run_rendezvous(*member_.engine, noticed, member_.rank, member_.nodes, member_.name,
                                  member_.options, mailbox_, wires_);
      !bad.ok())
    return bad;
  if (member_.options.aggregators > 0) wires_.board.reset();  // boards serve ranks only, not aggregators
  if (Status bad = choice_.learn(false, deadline_after(member_.options.timeout), give_up); !bad.ok()) return bad;
  return replanner_.begin(give_up);
}

uint64_t Group::sequence() const {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

void Group::abort(const std::string& reason) {
  aggregators_.abort(reason);
  mailbox_.fail(
      {Code::kAborted, "rank " + std::to_string(member_.rank) + " aborted the group: " + reason, member_.rank});
}

void Group::shutdown(const GiveUp& give_up) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  messages_.close();
  const Deadline deadline = deadline_after(kShutdownTime);
  Waited waited{};
  {
    std::unique_lock lock(mutex_);
    waited =
        wait_looking_up(ended_, lock, deadline, give_up, [this] { return queue_.empty() && !inline_running_; });
  }
  if (waited != Waited::kGivenUp) messages_.wait_until_ended(deadline, give_up);
  aggregators_.shutdown(give_up);
  mailbox_.close();
  const Deadline closed = deadline_after(kReplanEnds);
  {
    std::unique_lock lock(mutex_);  // a running replan and open messages see the closed mailbox and end
    ended_.wait_until(lock, closed, [this] { return queue_.empty(); });
  }
  messages_.wait_until_ended(closed, {});
  wires_.leave();
  wires_.wait_for_last_words(deadline_after(kLastWordsTime));
}

Result<Explanation> Group::explain(CollectiveKind kind, DType dtype, ReduceOp op, Node root, int64_t bytes,
                                   const std::optional<Codec>& codec) {
  const bool is_lossy = codec && is_on_several_hosts();
  if (!is_lossy && kind == CollectiveKind::kAllReduce && bytes >= 0 && is_defined(dtype, op)) {
    if (const auto with = aggregators_.faster_for(dtype, op, bytes)) {
      return with->explain(kind, dtype, op, root, bytes);
    }
  }
  return braid::explain(*choice_.tuner(), member_.ranks, kind, dtype, op, root, bytes,
                        is_lossy ? codec : std::nullopt);
}

}  // namespace braid
