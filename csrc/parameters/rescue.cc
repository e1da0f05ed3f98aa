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

// Does nothing if the shard has another home already, or is being rescued. `leaves`: its server lives, but leaves.
void ParameterService::begin_rescue(size_t shard, const Status& why, bool leaves) {
  const auto home = static_cast<size_t>(homes_[shard].load());
  const bool is_lost = lost_[home].load();
  if (rescues_[shard] || !(is_lost || leaves)) return;
  auto rescue = std::make_unique<Rescue>();
  rescue->shard = static_cast<int>(shard);
  rescue->from = rescue->to = static_cast<int>(home);
  rescue->is_hand_over = !is_lost;
  rescue->due = is_lost ? Clock::now() + kRescueTime : call_deadline();
  rescue->why = why;
  log(is_lost ? LogLevel::kWarning : LogLevel::kInfo, "parameter service \"" + setup_.name +
                                                          "\": " + why.message() + "; shard " +
                                                          std::to_string(shard) + " moves to another server");
  ask_next_server(*rescue);
  rescues_[shard] = std::move(rescue);
}

void ParameterService::ask_next_server(Rescue& rescue) {
  std::vector<bool> lives;
  for (size_t place = 0; place < clients_.size(); ++place)
    lives.push_back(clients_[place] && !lost_[place].load());
  rescue.to = successor_of(rescue.to, lives);
  if (rescue.is_hand_over && rescue.to < 0) rescue.to = rescue.from;
  rescue.state = Rescue::State::kAsk;
  rescue.ask_at = Clock::now();
  if (rescue.to < 0) failure_ = rescue.why.within("no parameter server is left");
}

void ParameterService::call_for(Rescue& rescue, int place, CallKind kind, HandOver hand_over) {
  const auto shard = static_cast<size_t>(rescue.shard);
  ClientCall& call = rescue.call;
  const uint64_t version = rescue.state == Rescue::State::kTaking ? call.answer.shard_version : versions_[shard];
  const uint64_t steps = call.answer.steps;
  call.call = {};
  call.call.kind = kind;
  call.call.hand_over = hand_over;
  call.call.shard = static_cast<uint16_t>(shard);
  call.call.count = extents_[shard].count;
  call.call.base = version;
  call.call.steps = steps;
  call.body = {};
  call.into = {};
  if (kind == CallKind::kInstall) {
    call.body = std::as_bytes(std::span(newest_ + extents_[shard].begin, extents_[shard].count));
  } else if (kind == CallKind::kSnapshot) {
    rescue.taken.resize(snapshot_floats(call.call, state_vectors_));
    call.into = std::as_writable_bytes(std::span(rescue.taken));
  } else if (kind == CallKind::kRestore) {
    call.body = std::as_bytes(std::span(rescue.taken));
  }
  call.answer = {};
  call.deadline = call_deadline();
  clients_[static_cast<size_t>(place)]->start(call);
}

bool ParameterService::move_rescue(size_t shard) {
  if (!rescues_[shard] || !failure_.ok()) return false;
  Rescue& rescue = *rescues_[shard];
  if (rescue.state == Rescue::State::kAsk) {
    const auto now = Clock::now();
    if (now < rescue.ask_at) return false;
    if (now > rescue.due) {
      failure_ = {Code::kPeerLost, rescue.is_hand_over
                                       ? "a parameter server leaves, and no other one takes over its shard"
                                       : "this worker has lost a parameter server that other workers still reach; "
                                         "start the worker again"};
      return true;
    }
    const bool has_none = rescue.is_hand_over && rescue.to == rescue.from;  // no other server takes it
    const HandOver hand_over = !rescue.is_hand_over ? HandOver::kNo : has_none ? HandOver::kKeep : HandOver::kYes;
    call_for(rescue, rescue.to, CallKind::kAdopt, hand_over);
    rescue.state = has_none ? Rescue::State::kKeeping : Rescue::State::kAsking;
    return true;
  }
  if (!rescue.call.is_over()) return false;
  if (rescue.call.status.ok()) {
    go_on_after(rescue);
  } else {
    go_on_after_failure(rescue);
  }
  return true;
}

void ParameterService::go_on_after(Rescue& rescue) {
  using State = Rescue::State;
  const Verdict verdict = rescue.call.answer.verdict;
  if (rescue.state == State::kTaking) {
    call_for(rescue, rescue.to, CallKind::kRestore, HandOver::kYes);
    rescue.state = State::kInstalling;
  } else if (rescue.state == State::kInstalling || verdict == Verdict::kDone) {
    end_rescue(rescue, rescue.to);
  } else if (verdict == Verdict::kSend && rescue.is_hand_over) {
    call_for(rescue, rescue.from, CallKind::kSnapshot, HandOver::kYes);
    rescue.state = State::kTaking;
  } else if (verdict == Verdict::kSend && newest_ != nullptr) {
    call_for(rescue, rescue.to, CallKind::kInstall, HandOver::kNo);
    rescue.state = State::kInstalling;
  } else {
    if (rescue.state == State::kKeeping) ask_next_server(rescue);
    rescue.state = State::kAsk;
    rescue.ask_at = Clock::now() + kAskAgain;
  }
}

void ParameterService::go_on_after_failure(Rescue& rescue) {
  const auto is_lost = [&](int place) { return lost_[static_cast<size_t>(place)].load(); };
  if (rescue.is_hand_over && is_lost(rescue.from)) {  // it died before all was done
    rescue.is_hand_over = false;
    rescue.due = Clock::now() + kRescueTime;
    if (rescue.to == rescue.from || is_lost(rescue.to)) return ask_next_server(rescue);
    rescue.state = Rescue::State::kAsk;
  } else if (rescue.state == Rescue::State::kTaking && rescue.call.answer.has_moved != 0) {
    rescue.state = Rescue::State::kAsk;  // another worker takes it
    rescue.ask_at = Clock::now() + kAskAgain;
  } else if (rescue.state == Rescue::State::kTaking) {
    end_rescue(rescue, rescue.from);  // it stays
  } else if (is_lost(rescue.to) || rescue.call.answer.has_moved != 0) {
    ask_next_server(rescue);
    rescue.ask_at += kAskAgain;
  } else {
    failure_ = rescue.call.status;
  }
}

// From now on the shard is at `home`.
void ParameterService::end_rescue(Rescue& rescue, int home) {
  const auto shard = static_cast<size_t>(rescue.shard);
  homes_[shard].store(home);
  if (rescue.is_hand_over && home != rescue.from) farewells_.try_emplace(rescue.from);
  rescues_[shard].reset();                // ends the argument, too
  for (const Request& request : open_) {  // refused parts are repeated, even if the shard stays where it was
    const ClientCall& call = request->calls_[shard];
    if (call.is_over() && !call.status.ok() && call.answer.has_moved != 0) request->places_[shard] = -1;
  }
}

}  // namespace braid
