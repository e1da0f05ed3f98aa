// SPDX-License-Identifier: Apache-2.0
// A worker's part in taking the shard of a lost server to another one.
#include <utility>

#include "base/log.h"
#include "parameters/placement.h"
#include "parameters/service.h"

namespace braid {
namespace {

constexpr milliseconds kAskAgain{10};
// A server that only this worker has lost is never replaced. After this time the worker gives up.
constexpr milliseconds kRescueTime{30'000};

}  // namespace

// Does nothing if the shard has another home already, or is being rescued.
void ParameterService::begin_rescue(size_t shard, const Status& why) {
  const auto home = static_cast<size_t>(homes_[shard].load());
  if (!lost_[home].load() || rescues_[shard]) return;
  auto rescue = std::make_unique<Rescue>();
  rescue->shard = static_cast<int>(shard);
  rescue->to = static_cast<int>(home);
  rescue->due = Clock::now() + kRescueTime;
  rescue->why = why;
  log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + why.message() + "; shard " +
                              std::to_string(shard) + " moves to another server");
  ask_next_server(*rescue);
  rescues_[shard] = std::move(rescue);
}

void ParameterService::ask_next_server(Rescue& rescue) {
  std::vector<bool> lives;
  for (size_t place = 0; place < clients_.size(); ++place)
    lives.push_back(clients_[place] && !lost_[place].load());
  rescue.to = successor_of(rescue.to, lives);
  rescue.state = Rescue::State::kAsk;
  rescue.ask_at = Clock::now();
  if (rescue.to < 0) failure_ = rescue.why.within("no parameter server is left");
}

bool ParameterService::move_rescue(size_t shard) {
  if (!rescues_[shard] || !failure_.ok()) return false;
  Rescue& rescue = *rescues_[shard];
  ClientCall& call = rescue.call;
  Client& client = *clients_[static_cast<size_t>(rescue.to)];
  const auto now = Clock::now();
  const auto call_with = [&](CallKind kind, ConstBytes body) {
    call.call = {};
    call.call.kind = kind;
    call.call.shard = static_cast<uint16_t>(shard);
    call.call.count = extents_[shard].count;
    call.call.base = versions_[shard];
    call.body = body;
    call.answer = {};
    call.deadline = call_deadline();
    client.start(call);
  };
  if (rescue.state == Rescue::State::kAsk) {
    if (now < rescue.ask_at) return false;
    if (now > rescue.due) {
      failure_ = {Code::kPeerLost,
                  "this worker has lost a parameter server that other workers still reach; start the "
                  "worker again"};
      return true;
    }
    call_with(CallKind::kAdopt, {});
    rescue.state = Rescue::State::kAsking;
    return true;
  }
  if (!call.is_over()) return false;
  if (!call.status.ok()) {
    if (lost_[static_cast<size_t>(rescue.to)].load()) {
      ask_next_server(rescue);
    } else {
      failure_ = call.status;
    }
    return true;
  }
  const bool is_there = rescue.state == Rescue::State::kInstalling || call.answer.verdict == Verdict::kDone;
  if (is_there) {
    homes_[shard].store(rescue.to);
    rescues_[shard].reset();
  } else if (call.answer.verdict == Verdict::kSend && newest_ != nullptr) {
    const Extent& extent = extents_[shard];
    call_with(CallKind::kInstall, std::as_bytes(std::span(newest_ + extent.begin, extent.count)));
    rescue.state = Rescue::State::kInstalling;
  } else {
    rescue.state = Rescue::State::kAsk;
    rescue.ask_at = now + kAskAgain;
  }
  return true;
}

}  // namespace braid
