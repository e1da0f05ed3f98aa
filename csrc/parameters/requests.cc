// SPDX-License-Identifier: Apache-2.0
// The requests of a worker: one call to each shard that has numbers.
#include <algorithm>
#include <utility>

#include "parameters/service.h"

namespace braid {

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

ParameterService::Request ParameterService::start(CallKind kind, const float* newest, Owner owner,
                                                  const Fill& fill) {
  auto request = std::make_shared<ParameterRequest>();
  request->kind_ = kind;
  request->newest_ = newest;
  request->owner_ = std::move(owner);
  const Deadline deadline = request->due_ = call_deadline();
  std::vector<size_t> due;
  std::unique_lock lock(mutex_);
  request->versions_ = versions_;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    ClientCall& call = request->calls_.emplace_back();
    call.call.kind = kind;
    call.call.shard = static_cast<uint16_t>(shard);
    call.call.count = extents_[shard].count;
    call.call.base = versions_[shard];
    call.call.moves = moves_[shard];
    call.deadline = deadline;
    request->places_.push_back(homes_[shard].load());
    request->is_parked_.push_back(is_asked(shard) && !may_start(shard, nullptr));
    request->is_noted_.push_back(false);
    if (!is_asked(shard)) continue;
    fill(shard, call);
    call.begin();
    if (!request->is_parked_.back()) due.push_back(shard);
  }
  if (is_push(kind)) count_push(*request);
  if (kind == CallKind::kRest) {
    is_resting_ = true;
    has_clock_ = false;
  }
  open_.push_back(request);
  const Status failure = failure_;
  lock.unlock();  // a mapped shard is changed right here, and others need the lock
  for (const size_t shard : due) start_call(shard, *request, failure);
  return request;
}

// All shards count this worker's updates by one number, so none holds it while another one waits for it.
void ParameterService::count_push(ParameterRequest& request) {
  is_resting_ = false;
  request.has_number_ = has_clock_;
  if (has_clock_) ++clock_;
  for (ClientCall& call : request.calls_) {
    call.call.steps = has_clock_ ? clock_ : 0;
    call.call.place = has_clock_ ? 0 : 1;
  }
}

void ParameterService::learn_clock(const ParameterRequest& request) {
  if (has_clock_ || request.has_number_ || !is_push(request.kind_)) return;
  uint64_t most = 0;
  for (const ClientCall& call : request.calls_) most = std::max(most, call.answer.steps);
  if (most == 0) return;  // no shard has counted it: all of it was lost
  clock_ = most;
  for (const Request& other : open_) {  // each is counted once more
    if (other.get() != &request && is_push(other->kind_) && !other->has_number_) ++clock_;
  }
  has_clock_ = !is_resting_;
}

bool ParameterService::rescue_lost_shards() {
  if (!is_worker_ || !failure_.ok()) return false;
  bool moved = false;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    const int home = homes_[shard].load();
    if (!is_asked(shard) || rescues_[shard] || !is_lost(home)) continue;
    const auto& client = clients_[static_cast<size_t>(home)];
    const Status loss = client ? client->failure() : Status();
    begin_rescue(shard, loss.ok() ? Status(Code::kPeerLost, server_text_at(home) + " is lost") : loss, false);
    moved = true;
    if (!failure_.ok()) return true;
  }
  return moved;
}

std::string ParameterService::unanswered(const ParameterRequest& request) const {
  const std::lock_guard lock(mutex_);
  std::set<int> silent;
  for (size_t shard = 0; shard < request.calls_.size(); ++shard) {
    if (request.is_parked_[shard] || !request.calls_[shard].is_over()) silent.insert(request.places_[shard]);
  }
  std::string who;
  for (const int place : silent) who += (who.empty() ? "" : ", ") + server_text_at(place);
  const std::string others = setup_.server.mode == Mode::kAsync ? "" : "; it may wait for other workers";
  return name_of(request.kind_) + " is not answered yet by " + who + others + "; the request goes on";
}

void ParameterService::start_call(size_t shard, ParameterRequest& request, const Status& failure) {
  ClientCall& call = request.calls_[shard];
  Client* const client = clients_[static_cast<size_t>(request.places_[shard])].get();
  if (!failure.ok()) {
    call.finish(failure);
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

ParameterService::Request ParameterService::install(const float* values, Owner owner) {
  return start(CallKind::kInstall, values, std::move(owner), [&](size_t shard, ClientCall& call) {
    call.body = std::as_bytes(part(values, extents_[shard]));
    call.call.base = 0;
  });
}

ParameterService::Request ParameterService::push(const float* update, float* result, Table table, float scale,
                                                 const ParameterRequest* based_on, std::optional<uint64_t> round,
                                                 Owner owner) {
  const auto shared = std::make_shared<const Table>(std::move(table));
  const CallKind kind = result == nullptr ? CallKind::kPush : CallKind::kPushPull;
  return start(kind, is_elastic() ? update : result, std::move(owner), [&](size_t shard, ClientCall& call) {
    call.table = shared;
    call.call.scale = scale;
    if (based_on != nullptr) call.call.base = based_on->versions()[shard];
    if (round) call.call.base = *round;
    call.body = std::as_bytes(part(update, extents_[shard]));
    if (result != nullptr) call.into = std::as_writable_bytes(part(result, extents_[shard]));
  });
}

ParameterService::Request ParameterService::pull(float* values, Owner owner) {
  return start(CallKind::kPull, values, std::move(owner), [&](size_t shard, ClientCall& call) {
    call.into = std::as_writable_bytes(part(values, extents_[shard]));
  });
}

ParameterService::Request ParameterService::rest() {
  return start(CallKind::kRest, nullptr, {}, [](size_t, ClientCall&) {});
}

ParameterService::Request ParameterService::look() {
  return start(CallKind::kLook, nullptr, {}, [](size_t, ClientCall&) {});
}

ParameterService::Request ParameterService::snapshot(float* values, Owner owner) {
  const auto vectors = static_cast<size_t>(1 + state_vectors_);
  return start(CallKind::kSnapshot, nullptr, std::move(owner), [&](size_t shard, ClientCall& call) {
    call.into = std::as_writable_bytes(part(values, extents_[shard], vectors));
  });
}

ParameterService::Request ParameterService::restore(const float* values, const std::vector<uint64_t>& steps,
                                                    const std::vector<uint64_t>& versions, Owner owner) {
  const auto vectors = static_cast<size_t>(1 + state_vectors_);
  return start(CallKind::kRestore, nullptr, std::move(owner), [&](size_t shard, ClientCall& call) {
    call.body = std::as_bytes(part(values, extents_[shard], vectors));
    call.call.steps = shard < steps.size() ? steps[shard] : 0;
    call.call.base = shard < versions.size() ? versions[shard] : 0;
  });
}

}  // namespace braid
