// SPDX-License-Identifier: Apache-2.0
#include "parameters/service.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "transport/doorbell.h"

namespace braid {
namespace {

// A sleeping thread looks this often for what rings no bell: deadlines, and rescues that are to ask again.
constexpr milliseconds kLookEvery{20};
constexpr milliseconds kLookSeldom{500};
// While callers wait, and so poll, the polling thread of a worker that serves nobody looks only this often.
constexpr milliseconds kRest{1};
// How long a leaving worker waits until the servers have heard of it.
constexpr milliseconds kLeaveTime{1000};
// How long a rank that leaves before other workers waits until they have taken its shards to other servers.
constexpr milliseconds kHandOverTime{10'000};

}  // namespace

// ---- What moves them

bool ParameterService::tend() {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  moved |= move_rescues();
  moved |= rescue_lost_shards();
  moved |= attend_idle_servers();
  moved |= say_farewells();
  moved |= tend_newcomers();
  for (const Request& request : open_) moved |= start_parked(*request);
  for (auto at = open_.begin(); at != open_.end();) {
    if (tend_locked(**at)) {
      at = open_.erase(at);
      moved = true;
    } else {
      ++at;
    }
  }
  return moved;
}

bool ParameterService::is_lost(int place) const {
  const auto at = static_cast<size_t>(place);
  if (!is_known(place)) return false;
  return lost_[at].load() || !clients_[at] || !clients_[at]->failure().ok();
}

// True if the request is done.
bool ParameterService::tend_locked(ParameterRequest& request) {
  Status bad;
  bool is_open = false;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    if (request.is_parked_[shard] || !request.calls_[shard].is_over()) {
      is_open = true;
      continue;
    }
    if (!is_asked(shard)) continue;
    const Status& status = request.calls_[shard].status;
    if (status.ok()) {
      note_push(shard, request);
      continue;
    }
    const bool goes_on = failure_.ok() && (tend_moved_part(shard, request) || tend_lost_part(shard, request));
    is_open |= goes_on;
    if (!goes_on && bad.ok()) bad = failure_.ok() ? status : failure_;
  }
  if (is_open) return false;
  if (bad.ok()) note_versions(request);
  if (bad.ok()) learn_clock(request);
  const bool is_first = request.kind_ == CallKind::kInstall;
  if (bad.ok() && request.newest_ != nullptr && !(is_first && kept_.values != nullptr)) {
    kept_.values = request.newest_;
    kept_.owner = request.owner_;
  }
  request.status_ = bad;
  request.done_.store(true, std::memory_order_release);  // from here on its memory belongs to the caller again
  ring(engine_->bell());
  return true;
}

// Shards without numbers count as far as the least of the others.
void ParameterService::note_versions(ParameterRequest& request) {
  uint64_t least = UINT64_MAX;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    if (is_asked(shard)) least = std::min(least, request.calls_[shard].answer.shard_version);
  }
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    const uint64_t version = is_asked(shard) ? request.calls_[shard].answer.shard_version : least;
    request.versions_[shard] = version;
    if (request.newest_ == nullptr || request.kind_ == CallKind::kInstall) continue;
    versions_[shard] = version;
    kept_.rounds[shard] = request.calls_[shard].answer.steps;
    kept_.is_mixed[shard] = false;
  }
}

bool ParameterService::poll_clients() {
  bool moved = false;
  for (size_t place = 0; place < places(); ++place) {
    if (!clients_[place]) continue;
    moved |= clients_[place]->poll();
    if (!lost_[place].load(std::memory_order_relaxed) && !clients_[place]->failure().ok()) {
      note_lost(static_cast<int>(place));
      moved = true;
    }
  }
  return moved;
}

void ParameterService::note_lost(int place) {
  const std::lock_guard lock(mutex_);
  if (!lost_[static_cast<size_t>(place)].exchange(true) && failure_.ok()) {
    lost_servers_.push_back(clients_[static_cast<size_t>(place)]->failure().message());
  }
}

bool ParameterService::poll_sessions() {
  {
    const std::lock_guard lock(mutex_);
    sessions_.splice(sessions_.end(), arrived_);
  }
  bool moved = false;
  for (const auto& session : sessions_) moved |= session->poll();
  if (std::erase_if(sessions_, [](const auto& session) { return session->is_over(); }) == 0) return moved;
  if (server_->is_given_up(is_worker_ ? setup_.member : -1)) {
    fence("this process, or its network, stood still: the others took it for lost, and go on without it");
  }
  return true;
}

void ParameterService::fence(const std::string& reason) {
  const Status why(Code::kAborted, reason + "; start it again");
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
  }
  for (size_t place = 0; place < places(); ++place) {
    const auto& client = clients_[place];
    if (client) client->fail(why);
  }
  if (server_) server_->close(why);
  if (server_ && is_worker_) server_->dismiss(setup_.member, false);  // close() waits for those that are left
  sessions_.clear();
  log(LogLevel::kWarning, "parameter service \"" + setup_.name + "\": " + why.message());
}

void ParameterService::poll_until_stopped() {
  // Others take a member for lost that is silent for peer_timeout. It may have been silent for a quarter of that
  // before it stood still, because only then they ask it for a sign.
  const milliseconds limit = setup_.options.peer_timeout * 3 / 4;
  auto looked_at = Clock::now();
  uint64_t waits_seen = 0;
  Waiter waiter(engine_->bell());
  while (!is_stopping()) {
    const auto now = Clock::now();
    const auto gap = std::chrono::duration_cast<milliseconds>(now - std::exchange(looked_at, now));
    if (limit.count() > 0 && gap > limit && has_begun_.load(std::memory_order_acquire)) {
      fence("this process stood still for " + std::to_string(gap.count() / 1000) +
            " s, and the others may have gone on without it");
    }
    bool moved = poll_sessions();
    if (copier_) moved |= copier_->poll();
    const Deadline round_ends = server_ ? server_->end_late_rounds() : kNoDeadline;
    const uint64_t waits = waits_.load();
    const bool callers_poll = callers_.load() > 0 || std::exchange(waits_seen, waits) != waits;
    if (callers_poll && sessions_.empty() && !copier_) {
      waiter.moved();
      std::this_thread::sleep_for(kRest);
      continue;
    }
    bool is_waiting = false;
    if (has_clients_.load(std::memory_order_acquire)) {
      moved |= poll_clients();
      moved |= tend();
      const std::lock_guard lock(mutex_);
      is_waiting = !open_.empty() || std::any_of(rescues_.begin(), rescues_.end(),
                                                 [](const auto& rescue) { return rescue != nullptr; });
    }
    Deadline look = std::min(round_ends, Clock::now() + (is_waiting ? kLookEvery : kLookSeldom));
    if (copier_) look = std::min(look, std::max(copier_->due(), Clock::now() + kLookEvery));
    moved ? waiter.moved() : waiter.idle(look);
  }
}

Waited ParameterService::wait(const ParameterRequest& request, Deadline deadline, const GiveUp& give_up) {
  const Caller caller(*this);
  Waiter waiter(engine_->bell());
  Deadline look_up = Clock::now() + kLookUpEvery;
  while (!request.done()) {
    const bool moved = poll_clients();
    if (tend() || moved) {
      waiter.moved();
      continue;
    }
    const auto now = Clock::now();
    if (now >= deadline) return Waited::kLate;
    if (now >= look_up) {
      if (give_up && give_up()) return Waited::kGivenUp;
      look_up = now + kLookUpEvery;
    }
    waiter.idle(std::min({deadline, look_up, now + kLookEvery}));
  }
  return Waited::kDone;
}

// ---- The end

void ParameterService::close(milliseconds limit, const GiveUp& give_up, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    failure_ = {Code::kAborted, "the parameter service was closed"};
  }
  const Status lost(Code::kPeerLost, why);
  for (size_t place = 0; has_clients_.load() && !why.empty() && place < places(); ++place) {
    if (clients_[place]) clients_[place]->fail(lost);
  }
  if (is_worker_ && has_clients_.load()) {
    std::deque<ClientCall> farewells;
    for (size_t place = 0; place < places(); ++place) {
      const auto& client = clients_[place];
      if (!client || !client->failure().ok()) continue;
      farewells.emplace_back().call.kind = CallKind::kLeave;
      client->start(farewells.back());
    }
    const Deadline until = Clock::now() + kLeaveTime;
    const auto is_over = [](const ClientCall& call) { return call.is_over(); };
    while (!std::all_of(farewells.begin(), farewells.end(), is_over) && Clock::now() < until) {
      if (!poll_clients()) std::this_thread::sleep_for(milliseconds(1));
    }
    for (size_t place = 0; place < places(); ++place) {
      const auto& client = clients_[place];
      if (client) client->fail({Code::kAborted, "the parameter service was closed"});
    }
    static_cast<void>(tend());
  }
  const auto await_leavers = [&](milliseconds time) {
    const Deadline until = Clock::now() + time;
    while (!server_->workers().empty()) {
      if (Clock::now() > until || (give_up && give_up())) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  };
  if (server_ && limit.count() > 0 && !await_leavers(limit) && is_worker_ && why.empty()) {
    server_->leave();
    await_leavers(kHandOverTime);
  }
  stopping_.store(true, std::memory_order_release);
  ring(engine_->bell());
  if (doorkeeper_.joinable()) doorkeeper_.join();
  if (poller_.joinable()) poller_.join();
  if (copier_) copier_->stop();
  for (const auto& session : sessions_) {
    if (!why.empty()) session->end({Code::kAborted, why});
  }
  if (server_) server_->close({Code::kAborted, "the parameter service was closed"});
  arrived_.clear();
  sessions_.clear();
}

ParameterService::~ParameterService() { close(milliseconds(0), {}); }

ParameterService::Stats ParameterService::stats() const {
  Stats stats;
  if (server_) {
    stats.workers = server_->workers();  // first: once none is left, the counts below are final
    stats.server = server_->stats();
    if (copier_) stats.server.bytes += copier_->bytes();
  }
  for (size_t place = 0; place < places(); ++place) {
    const auto& client = clients_[place];
    stats.wires.push_back(client ? client->wire() : "not reached");
    stats.sent_bytes.push_back(client ? client->sent_bytes() : 0);
    stats.received_bytes.push_back(client ? client->received_bytes() : 0);
    if (client) stats.worker_bytes += client->kept_bytes();
  }
  stats.worker_bytes += residuals_.bytes();
  for (const auto& home : homes_) stats.homes.push_back(home.load());
  const std::lock_guard lock(mutex_);
  for (const auto& rescue : rescues_) stats.worker_bytes += rescue ? rescue->bytes() : 0;
  stats.lost_parts = lost_parts_;
  stats.lost_members = stats.server.lost;
  stats.lost_members.insert(stats.lost_members.end(), lost_servers_.begin(), lost_servers_.end());
  return stats;
}

Status ParameterService::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace braid
