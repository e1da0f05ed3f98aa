// SPDX-License-Identifier: Apache-2.0
// A worker's part in finding another server for a shard. If its server was lost, all workers ask the next one in the
// list, and one of them brings its values (adoption.cc). If its server leaves, one worker takes the shard to the next
// one that does not leave (handover.cc).
#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "parameters/placement.h"
#include "parameters/service.h"

namespace braid {
namespace {

constexpr milliseconds kAskAgain{10};
constexpr milliseconds kAskForMemoryAgain{1'000};
// A server that only this worker has lost is never replaced. After this time the worker gives up; not before others
// must have noticed the loss, too.
constexpr milliseconds kRescueTime{30'000};

Deadline rescue_due(const Options& options) {
  return Clock::now() + std::max(kRescueTime, 2 * options.peer_timeout);
}

}  // namespace

// Does nothing if the shard has another home already, or is being rescued. `leaves`: its server lives, but leaves.
void ParameterService::begin_rescue(size_t shard, const Status& why, bool leaves) {
  const int home = homes_[shard].load();
  const bool was_lost = is_lost(home);
  if (rescues_[shard] || !(was_lost || leaves)) return;
  auto rescue = std::make_unique<Rescue>();
  rescue->shard = static_cast<int>(shard);
  rescue->from = home;
  rescue->is_hand_over = !was_lost;
  rescue->state = was_lost ? Rescue::State::kFinding : Rescue::State::kTaking;
  rescue->due = was_lost ? rescue_due(setup_.options) : call_deadline();
  rescue->why = why;
  rescue->moves = moves_[shard];
  rescue->ask_at = Clock::now();
  if (places() > 1) {  // else choose() says that none is left
    log(was_lost ? LogLevel::kWarning : LogLevel::kInfo, "parameter service \"" + setup_.name +
                                                             "\": " + why.message() + "; shard " +
                                                             std::to_string(shard) + " moves to another server");
  }
  rescues_[shard] = std::move(rescue);
  choose(*rescues_[shard]);
}

// Chooses `to`: the next place in the circle that lives and has not refused. If all have refused, because they leave,
// one of them must stay: the first of the list, which may be `from`. So all workers choose the same one.
void ParameterService::choose(Rescue& rescue) {
  std::vector<bool> lives;
  bool has_living = false;
  for (int place = 0; place < static_cast<int>(places()); ++place) {
    has_living |= !is_lost(place);
    lives.push_back(!is_lost(place) && !rescue.refused.contains(place));
  }
  if (!has_living) {
    failure_ = rescue.why.within("no parameter server is left");
    return;
  }
  if (!rescue.is_forced) {
    rescue.to = successor_of(rescue.from, lives);
    if (rescue.to >= 0) return;
    rescue.is_forced = true;
    rescue.refused.clear();
    return choose(rescue);
  }
  const auto first = std::find(lives.begin(), lives.end(), true);
  if (first != lives.end()) {
    rescue.to = static_cast<int>(first - lives.begin());
    return;
  }
  rescue.is_forced = false;  // those that could not stay are about to end: the others may have changed their mind
  rescue.refused.clear();
  rescue.ask_at = Clock::now() + kAskAgain;
  rescue.to = successor_of(rescue.from, lives);
}

// A request that is not done may have brought this shard, and waits for another one.
ParameterService::Newest ParameterService::newest_of(size_t shard) const {
  const size_t begin = extents_[shard].begin;
  const float* const kept = kept_.values == nullptr ? nullptr : kept_.values + begin;
  Newest newest{kept, versions_[shard], kept_.rounds[shard], kept_.is_mixed[shard]};
  for (const Request& request : open_) {
    const ClientCall& call = request->calls_[shard];
    if (request->kind_ == CallKind::kInstall) {  // its values are the first ones, wherever they have come
      if (newest.values == nullptr) newest.values = request->newest_ + begin;
      continue;
    }
    if (is_elastic() || request->newest_ == nullptr || request->is_parked_[shard] || !call.is_over()) continue;
    const float* const values = request->newest_ + begin;
    if (!call.status.ok()) {
      newest.is_mixed |= call.has_begun_to_arrive && values == newest.values;
    } else if (call.answer.shard_version > newest.version) {
      newest = {values, call.answer.shard_version, call.answer.steps, false};
    }
  }
  return newest;
}

void ParameterService::call_for(Rescue& rescue, int place, CallKind kind, HandOver hand_over) {
  const auto shard = static_cast<size_t>(rescue.shard);
  ClientCall& call = rescue.call;
  call.call = {};
  call.call.kind = kind;
  call.call.hand_over = hand_over;
  call.call.shard = static_cast<uint16_t>(shard);
  call.call.count = extents_[shard].count;
  const Newest newest = newest_of(shard);
  call.call.base = kind == CallKind::kRestore ? rescue.version : newest.version;
  if (hand_over == HandOver::kShare) call.call.base = rescue.workers;
  call.call.steps = rescue.steps;
  if (kind == CallKind::kAdopt) {
    call.call.steps = rescue.lacks_memory && newest.values != nullptr ? kNoMemory : newest.quality();
  }
  if (kind == CallKind::kInstall) call.call.steps = newest.rounds;
  call.call.moves = rescue.is_hand_over ? rescue.moves : moves_[shard] + 1;
  call.call.place = static_cast<uint32_t>(rescue.to);
  call.body = {};
  call.into = {};
  call.status = {Code::kSystem, "there was no memory for it"};  // as long as it has not begun
  if (kind == CallKind::kInstall) {
    rescue.take_memory(install_floats(call.call));
    std::copy_n(newest.values, extents_[shard].count, rescue.taken.get());
    losses_[shard].write(rescue.taken.get() + extents_[shard].count);
    call.body = rescue.carried();
  } else if (kind == CallKind::kSnapshot) {
    rescue.take_memory(snapshot_floats(call.call, state_vectors_));
    call.into = rescue.carried();
  } else if (kind == CallKind::kRestore) {
    call.body = rescue.carried();
  }
  call.answer = {};
  call.status = {};
  call.deadline = call_deadline();
  clients_[static_cast<size_t>(place)]->start(call);
}

bool ParameterService::move_rescues() {
  bool moved = false;
  for (size_t shard = 0; shard < rescues_.size(); ++shard) {
    const Status thrown = caught("carrying a shard", [&] { moved |= move_rescue(shard); });
    if (!thrown.ok()) postpone(shard, thrown);
  }
  return moved;
}

void ParameterService::postpone(size_t shard, const Status& why) {
  if (!rescues_[shard]) return;
  Rescue& rescue = *rescues_[shard];
  if (!std::exchange(rescue.lacks_memory, true)) {
    log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": this worker cannot carry shard " +
                                std::to_string(shard) + ", so another one has to: " + why.message());
  }
  ask_again(rescue);
  rescue.ask_at = Clock::now() + kAskForMemoryAgain;
}

// A worker has memory for one shard at a time. Other workers may carry others meanwhile.
bool ParameterService::carries_another(const Rescue& rescue) const {
  return std::any_of(rescues_.begin(), rescues_.end(), [&rescue](const std::unique_ptr<Rescue>& other) {
    return other && other.get() != &rescue && other->taken;
  });
}

// A mapped shard is read and changed by the caller's thread. It may still be writing what a rescue brings.
bool ParameterService::is_being_written(size_t shard) const {
  return std::any_of(open_.begin(), open_.end(), [shard](const Request& request) {
    return request->newest_ != nullptr && !request->is_parked_[shard] && !request->calls_[shard].is_over();
  });
}

bool ParameterService::move_rescue(size_t shard) {
  if (!rescues_[shard] || !failure_.ok()) return false;
  Rescue& rescue = *rescues_[shard];
  if (!rescue.call.is_over()) return false;
  if (!rescue.is_hand_over && is_being_written(shard)) return false;
  if (!rescue.has_asked) {
    const auto now = Clock::now();
    if (now < rescue.ask_at) return false;
    if (now > rescue.due) {
      failure_ = why_none_took(rescue);
      return true;
    }
    if (rescue.state == Rescue::State::kTaking && carries_another(rescue)) return false;
    rescue.has_asked = true;
    if (rescue.state == Rescue::State::kTaking) {
      const bool asks_first = rescue.is_share && !rescue.is_frozen;
      call_for(rescue, rescue.from, CallKind::kSnapshot, asks_first ? HandOver::kShare : HandOver::kYes);
    } else {
      find(rescue);
    }
    return true;
  }
  if (rescue.is_hand_over && is_lost(rescue.from)) {  // it died before all was done
    rescue.is_hand_over = rescue.is_share = false;
    rescue.to = -1;
    rescue.due = rescue_due(setup_.options);
    ask_again(rescue);
  } else if (rescue.is_hand_over) {
    go_on_with_hand_over(rescue);
  } else {
    go_on(rescue);
  }
  return true;
}

Status ParameterService::why_none_took(const Rescue& rescue) const {
  if (rescue.lacks_memory) return {Code::kSystem, "no worker has the memory to bring a shard to another server"};
  if (rescue.servers_lack_memory) {
    return Status(Code::kPeerLost, rescue.why.message())
        .within(
            "no parameter server that is left has memory for a shard; start another `braid serve`, or give each "
            "more with --memory");
  }
  if (rescue.is_hand_over)
    return {Code::kPeerLost, "a parameter server leaves, and no other one takes over its shard"};
  return Status(Code::kPeerLost, rescue.why.message())
      .within("this worker has lost a parameter server that other workers still reach; start the worker again");
}

// Asks anew after a while, from the first state on.
void ParameterService::ask_again(Rescue& rescue) {
  rescue.taken.reset();
  rescue.state = rescue.is_hand_over ? Rescue::State::kTaking : Rescue::State::kFinding;
  rescue.has_asked = false;
  rescue.moves = moves_[static_cast<size_t>(rescue.shard)];
  rescue.asked = rescue.keeper = -1;
  // All have refused. Only a server that comes late can change that.
  const bool is_vain = rescue.servers_lack_memory && rescue.refused.empty();
  rescue.ask_at = Clock::now() + (is_vain ? kAskForMemoryAgain : kAskAgain);
}

// ---- The server was lost

// Asks the next living server whether it has the shard; if none has, asks one to take it.
void ParameterService::find(Rescue& rescue) {
  do {
    ++rescue.asked;
  } while (is_known(rescue.asked) && is_lost(rescue.asked));
  if (is_known(rescue.asked)) return call_for(rescue, rescue.asked, CallKind::kFind, HandOver::kNo);
  // Servers that have come late may be a backup that is not the next one for all.
  if (rescue.keeper >= 0 && !is_lost(rescue.keeper) && !rescue.refused.contains(rescue.keeper)) {
    rescue.to = rescue.keeper;
  }
  if (rescue.to < 0 || is_lost(rescue.to) || rescue.refused.contains(rescue.to)) choose(rescue);
  if (!failure_.ok()) return;
  if (rescue.to < 0) return ask_again(rescue);
  rescue.state = Rescue::State::kAsking;
  call_for(rescue, rescue.to, CallKind::kAdopt, rescue.is_forced ? HandOver::kKeep : HandOver::kNo);
}

void ParameterService::go_on(Rescue& rescue) {
  using State = Rescue::State;
  const ClientCall& call = rescue.call;
  const bool is_ok = call.status.ok();
  const auto shard = static_cast<size_t>(rescue.shard);
  switch (rescue.state) {
    case State::kFinding:
      if (is_ok && call.answer.verdict == Verdict::kDone) return end_loss(shard, rescue.asked, call.answer);
      if (is_ok && call.answer.steps > 0 &&
          (rescue.keeper < 0 || call.answer.shard_version > rescue.kept_version)) {
        rescue.keeper = rescue.asked;
        rescue.kept_version = call.answer.shard_version;
      }
      return find(rescue);
    case State::kAsking:
      if (is_ok && call.answer.verdict == Verdict::kDone) return end_loss(shard, rescue.to, call.answer);
      if (is_ok && call.answer.verdict == Verdict::kSend && newest_of(shard).values != nullptr &&
          !carries_another(rescue)) {
        rescue.state = State::kInstalling;
        if (newest_of(shard).is_mixed) {
          log(LogLevel::kWarning, "parameter service \"" + setup_.name +
                                      "\": no worker has whole values of shard " + std::to_string(shard) +
                                      ", so parts of it are newer than others");
        }
        return call_for(rescue, rescue.to, CallKind::kInstall, HandOver::kYes);
      }
      break;
    case State::kInstalling:
      if (is_ok) return end_loss(shard, rescue.to, call.answer);
      break;
    default: break;
  }
  if (!is_ok && !is_lost(rescue.to) && call.answer.has_moved == 0) {
    failure_ = call.status;
    return;
  }
  if (!is_ok && call.answer.has_moved != 0) note_refusal(rescue);
  ask_again(rescue);
}

void ParameterService::note_refusal(Rescue& rescue) {
  rescue.refused.insert(rescue.to);
  if (rescue.call.answer.has_moved != kLacksMemory || std::exchange(rescue.servers_lack_memory, true)) return;
  log(LogLevel::kWarning,
      "parameter service \"" + setup_.name + "\": " + rescue.call.status.message() + "; another server is asked");
}

// ---- The server leaves

void ParameterService::bring(Rescue& rescue) {
  if (!failure_.ok()) return;
  if (rescue.to < 0) return ask_again(rescue);
  const bool stays = rescue.to == rescue.from;
  rescue.state = stays ? Rescue::State::kKeeping : Rescue::State::kRestoring;
  const HandOver hand_over = rescue.is_forced ? HandOver::kKeep : HandOver::kYes;
  call_for(rescue, rescue.to, stays ? CallKind::kAdopt : CallKind::kRestore, hand_over);
}

void ParameterService::go_on_with_hand_over(Rescue& rescue) {
  using State = Rescue::State;
  const ClientCall& call = rescue.call;
  const bool is_ok = call.status.ok();
  const auto shard = static_cast<size_t>(rescue.shard);
  switch (rescue.state) {
    case State::kTaking:
      if (is_ok && call.answer.verdict == Verdict::kDone) {
        rescue.version = call.answer.shard_version;
        rescue.steps = call.answer.steps;
        rescue.moves = call.answer.moves;
        rescue.is_forced = false;
        rescue.refused.clear();
        if (!rescue.is_share) choose(rescue);
        return bring(rescue);
      }
      rescue.is_frozen |= is_ok;
      if (is_ok) break;  // not yet, or another worker takes it
      if (call.answer.moved_to > 0 && call.answer.moved_to <= clients_.size()) {
        const Answer moved = call.answer;  // it goes with the rescue
        if (moved.shard_version != Losses::kNone) count_lost(shard, moved.shard_version, moved.moves);
        return end_rescue(shard, static_cast<int>(moved.moved_to) - 1, moved.moves);
      }
      return end_rescue(shard, rescue.from, moves_[shard]);  // it stays
    case State::kRestoring:
      if (is_ok) {
        rescue.taken.reset();
        rescue.state = State::kTelling;
        return call_for(rescue, rescue.from, CallKind::kMoved, HandOver::kNo);
      }
      if (!is_lost(rescue.to) && call.answer.has_moved == 0) {
        log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + call.status.message());
      }
      note_refusal(rescue);
      if (std::exchange(rescue.is_share, false)) {
        rescue.to = rescue.from;  // which has it still
      } else {
        choose(rescue);
      }
      return bring(rescue);
    case State::kTelling:
      if (is_ok) return end_rescue(shard, rescue.to, rescue.moves);
      break;
    case State::kKeeping:
      if (is_ok && call.answer.verdict == Verdict::kDone) return end_rescue(shard, rescue.from, moves_[shard]);
      break;
    default: break;
  }
  ask_again(rescue);
}

// From now on the shard is at `home`. Calls that wait go there. If this worker rests, it says so there, too.
void ParameterService::end_rescue(size_t shard, int home, uint64_t moves) {
  const int former = homes_[shard].load();
  const bool has_left = home != former && !is_lost(former);
  homes_[shard].store(home);
  moves_[shard] = std::max(moves_[shard], moves);
  if (has_left) farewells_.try_emplace(former);
  const bool was_lost = home != former && is_lost(former);
  rescues_[shard].reset();
  if (!is_resting_ || !was_lost || !is_known(home) || !rests_[shard].is_over()) return;
  ClientCall& call = rests_[shard];
  call.call = {};
  call.call.kind = CallKind::kRest;
  call.call.shard = static_cast<uint16_t>(shard);
  call.call.count = extents_[shard].count;
  call.call.moves = moves_[shard];
  call.deadline = call_deadline();
  clients_[static_cast<size_t>(home)]->start(call);
}

}  // namespace braid
