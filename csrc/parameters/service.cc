// SPDX-License-Identifier: Apache-2.0
#include "parameters/service.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "transport/doorbell.h"

namespace braid {
namespace {

// A sleeping thread looks this often for what rings no bell: deadlines, and rescues that are to ask again.
constexpr milliseconds kLookEvery{20};
constexpr milliseconds kLookSeldom{500};
// How long a leaving worker waits until the servers have heard of it.
constexpr milliseconds kLeaveTime{1000};

}  // namespace

// ---- Requests

uint32_t ParameterRequest::staleness() const {
  uint32_t most = 0;
  for (const ClientCall& call : calls_) most = std::max(most, call.answer.staleness);
  return most;
}

std::vector<uint64_t> ParameterRequest::steps() const {
  std::vector<uint64_t> steps;
  for (const ClientCall& call : calls_) steps.push_back(call.answer.steps);
  return steps;
}

ParameterService::Request ParameterService::start(CallKind kind, float* values, const Fill& fill) {
  auto request = std::make_shared<ParameterRequest>();
  request->kind_ = kind;
  request->values_ = values;
  request->began_ = Clock::now();
  const Deadline deadline = call_deadline();
  const std::lock_guard lock(mutex_);
  request->versions_ = versions_;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    ClientCall& call = request->calls_.emplace_back();
    call.call.kind = kind;
    call.call.shard = static_cast<uint16_t>(shard);
    call.call.count = extents_[shard].count;
    call.call.base = versions_[shard];
    call.deadline = deadline;
    request->places_.push_back(homes_[shard].load());
    fill(shard, call);
  }
  open_.push_back(request);
  for (size_t shard = 0; shard < extents_.size(); ++shard) start_call(shard, *request);
  return request;
}

void ParameterService::start_call(size_t shard, ParameterRequest& request) {
  ClientCall& call = request.calls_[shard];
  Client* const client = clients_[static_cast<size_t>(request.places_[shard])].get();
  if (!failure_.ok()) {
    call.finish(failure_);
  } else if (client != nullptr) {
    client->start(call);
  } else {
    call.finish({Code::kPeerLost, "that server was not there when this worker came"});
  }
}

namespace {

template <class T>
auto part(T* vector, const Extent& extent, size_t vectors = 1) {
  return std::span(vector + extent.begin * vectors, extent.count * vectors);
}

}  // namespace

ParameterService::Request ParameterService::install(const float* values) {
  return start(CallKind::kInstall, nullptr, [&](size_t shard, ClientCall& call) {
    call.body = std::as_bytes(part(values, extents_[shard]));
    call.call.base = 0;
  });
}

ParameterService::Request ParameterService::push(const float* update, float* result, Table table, float scale,
                                                 const ParameterRequest* based_on) {
  const auto shared = std::make_shared<const Table>(std::move(table));
  const CallKind kind = result == nullptr ? CallKind::kPush : CallKind::kPushPull;
  return start(kind, result, [&](size_t shard, ClientCall& call) {
    call.table = shared;
    call.call.scale = scale;
    if (based_on != nullptr) call.call.base = based_on->versions()[shard];
    call.body = std::as_bytes(part(update, extents_[shard]));
    if (result != nullptr) call.into = std::as_writable_bytes(part(result, extents_[shard]));
  });
}

ParameterService::Request ParameterService::pull(float* values) {
  return start(CallKind::kPull, values, [&](size_t shard, ClientCall& call) {
    call.into = std::as_writable_bytes(part(values, extents_[shard]));
  });
}

ParameterService::Request ParameterService::snapshot(float* values) {
  const auto vectors = static_cast<size_t>(1 + state_vectors_);
  return start(CallKind::kSnapshot, nullptr, [&](size_t shard, ClientCall& call) {
    call.into = std::as_writable_bytes(part(values, extents_[shard], vectors));
  });
}

ParameterService::Request ParameterService::restore(const float* values, const std::vector<uint64_t>& steps) {
  const auto vectors = static_cast<size_t>(1 + state_vectors_);
  return start(CallKind::kRestore, nullptr, [&](size_t shard, ClientCall& call) {
    call.body = std::as_bytes(part(values, extents_[shard], vectors));
    call.call.steps = shard < steps.size() ? steps[shard] : 0;
  });
}

// ---- What moves them

bool ParameterService::tend() {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  for (size_t shard = 0; shard < rescues_.size(); ++shard) moved |= move_rescue(shard);
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

// True if the request is done.
bool ParameterService::tend_locked(ParameterRequest& request) {
  for (const ClientCall& call : request.calls_) {
    if (!call.is_over()) return false;
  }
  Status bad;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    const Status& status = request.calls_[shard].status;
    if (status.ok()) continue;
    const bool is_lost = failure_.ok() && lost_[static_cast<size_t>(request.places_[shard])].load();
    if (is_lost && tend_lost_part(shard, request)) return false;
    if (bad.ok()) bad = is_lost && !failure_.ok() ? failure_ : status;
  }
  for (size_t shard = 0; bad.ok() && shard < extents_.size(); ++shard) {
    const uint64_t version = request.calls_[shard].answer.shard_version;
    request.versions_[shard] = version;
    if (request.values_ != nullptr) versions_[shard] = version;
  }
  if (bad.ok() && request.values_ != nullptr) newest_ = request.values_;
  request.status_ = bad;
  request.ended_ = Clock::now();
  request.done_.store(true, std::memory_order_release);  // from here on its memory belongs to the caller again
  ring(engine_->bell());
  return true;
}

// A part of the request went to a server that died. Once the shard has another home, its values are pulled from there.
// False if the part can not be had.
bool ParameterService::tend_lost_part(size_t shard, ParameterRequest& request) {
  const CallKind kind = request.kind_;
  if (kind != CallKind::kPush && kind != CallKind::kPushPull && kind != CallKind::kPull) return false;
  begin_rescue(shard, request.calls_[shard].status);
  if (!failure_.ok()) return false;
  if (rescues_[shard]) return true;
  ClientCall& call = request.calls_[shard];
  if (call.call.kind != CallKind::kPull) {
    ++lost_parts_;
    ++request.lost_parts_;
  }
  call.call.kind = CallKind::kPull;
  call.table = nullptr;
  call.body = {};
  call.call.ranges = 0;
  call.answer = {};
  if (kind == CallKind::kPush) {
    call.answer.shard_version = versions_[shard];
    call.finish({});
    return true;
  }
  request.places_[shard] = homes_[shard].load();
  start_call(shard, request);
  return true;
}

bool ParameterService::poll_clients() {
  bool moved = false;
  for (size_t place = 0; place < clients_.size(); ++place) {
    if (!clients_[place]) continue;
    moved |= clients_[place]->poll();
    if (!lost_[place].load(std::memory_order_relaxed) && !clients_[place]->failure().ok()) {
      lost_[place].store(true);
      moved = true;
    }
  }
  return moved;
}

bool ParameterService::poll_sessions() {
  {
    const std::lock_guard lock(mutex_);
    sessions_.splice(sessions_.end(), arrived_);
  }
  bool moved = false;
  for (const auto& session : sessions_) moved |= session->poll();
  std::erase_if(sessions_, [](const auto& session) { return session->is_over(); });
  return moved;
}

void ParameterService::poll_until_stopped() {
  Waiter waiter(engine_->bell());
  while (!is_stopping()) {
    bool moved = poll_sessions();
    bool is_waiting = false;
    if (has_clients_.load(std::memory_order_acquire)) {
      moved |= poll_clients();
      moved |= tend();
      const std::lock_guard lock(mutex_);
      is_waiting = !open_.empty();
    }
    moved ? waiter.moved() : waiter.idle(Clock::now() + (is_waiting ? kLookEvery : kLookSeldom));
  }
}

Waited ParameterService::wait(const ParameterRequest& request, Deadline deadline, const GiveUp& give_up) {
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

void ParameterService::close(milliseconds limit, const GiveUp& give_up) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    failure_ = {Code::kAborted, "the parameter service was closed"};
  }
  if (is_worker_ && has_clients_.load()) {
    std::deque<ClientCall> farewells;
    for (const auto& client : clients_) {
      if (!client || !client->failure().ok()) continue;
      farewells.emplace_back().call.kind = CallKind::kLeave;
      client->start(farewells.back());
    }
    const Deadline until = Clock::now() + kLeaveTime;
    const auto is_over = [](const ClientCall& call) { return call.is_over(); };
    while (!std::all_of(farewells.begin(), farewells.end(), is_over) && Clock::now() < until) {
      if (!poll_clients()) std::this_thread::sleep_for(milliseconds(1));
    }
    for (const auto& client : clients_) {
      if (client) client->fail({Code::kAborted, "the parameter service was closed"});
    }
    static_cast<void>(tend());
  }
  const Deadline until = Clock::now() + limit;
  while (server_ && !server_->workers().empty() && Clock::now() < until && !(give_up && give_up())) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  stopping_.store(true, std::memory_order_release);
  ring(engine_->bell());
  if (doorkeeper_.joinable()) doorkeeper_.join();
  if (poller_.joinable()) poller_.join();
  if (server_) server_->close({Code::kAborted, "the parameter service was closed"});
  arrived_.clear();
  sessions_.clear();
}

ParameterService::~ParameterService() { close(milliseconds(0), {}); }

ParameterService::Stats ParameterService::stats() const {
  Stats stats;
  if (server_) {
    stats.server = server_->stats();
    stats.workers = server_->workers();
  }
  for (const auto& client : clients_) {
    stats.wires.push_back(client ? client->wire() : "not reached");
    stats.sent_bytes.push_back(client ? client->sent_bytes() : 0);
    stats.received_bytes.push_back(client ? client->received_bytes() : 0);
  }
  for (const auto& home : homes_) stats.homes.push_back(home.load());
  const std::lock_guard lock(mutex_);
  stats.lost_parts = lost_parts_;
  return stats;
}

Status ParameterService::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace braid
