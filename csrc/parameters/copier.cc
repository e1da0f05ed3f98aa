// SPDX-License-Identifier: Apache-2.0
#include "parameters/copier.h"

#include <tuple>
#include <utility>

#include "base/log.h"

namespace braid {
namespace {

constexpr int kMostMisses = 3;

}  // namespace

Copier::Copier(Server& server, int place, int servers) : server_(server), place_(place), servers_(servers) {}

// The client ends before the call, whose memory it uses.
Copier::~Copier() { client_.reset(); }

int Copier::next_place() const {
  int best = -1;
  int fewest = kMostMisses;
  for (int step = 1; step < servers_; ++step) {
    const int next = (place_ + step) % servers_;
    const auto found = misses_.find(next);
    const int misses = found == misses_.end() ? 0 : found->second;
    if (misses < fewest) std::tie(best, fewest) = std::pair(next, misses);
  }
  return best;
}

int Copier::needs_backup() {
  const std::lock_guard lock(mutex_);
  if (client_ || is_looking_) return -1;
  is_looking_ = true;
  const int next = next_place();
  is_without_ = next < 0;
  if (is_without_) log(LogLevel::kWarning, "a parameter server has no backup: no other server is left");
  return next;
}

void Copier::connect(int place, std::unique_ptr<Client> client) {
  {
    const std::lock_guard lock(mutex_);
    client_ = std::move(client);
    client_->watch();
    backup_ = place;
    is_looking_ = false;
  }
  server_.set_backup(true);
}

void Copier::missed(int place) {
  const std::lock_guard lock(mutex_);
  ++misses_[place];
  is_looking_ = false;
}

void Copier::grow(int servers) {
  const std::lock_guard lock(mutex_);
  if (servers <= servers_) return;
  servers_ = servers;
  if (is_without_) is_looking_ = is_without_ = false;
}

void Copier::stop() {
  const std::lock_guard lock(mutex_);
  is_looking_ = true;
  is_without_ = false;
  client_.reset();
}

bool Copier::poll() {
  const std::lock_guard lock(mutex_);
  if (!client_) return false;
  bool moved = client_->poll();
  if (is_under_way_ && call_.is_over()) moved |= end_copy();
  if (client_ && !client_->failure().ok()) drop(client_->failure());
  if (client_ && !is_under_way_ && server_.take_copy(copy_)) {
    start_copy();
    moved = true;
  }
  return moved;
}

void Copier::start_copy() {
  is_under_way_ = true;
  call_.call = {};
  call_.call.kind = CallKind::kReplica;
  call_.call.hand_over = HandOver::kYes;
  call_.call.shard = static_cast<uint16_t>(copy_.shard);
  call_.call.count = server_.extents()[static_cast<size_t>(copy_.shard)].count;
  call_.call.base = copy_.version;
  call_.call.steps = copy_.steps;
  call_.call.moves = copy_.moves;
  call_.body = std::as_bytes(std::span(copy_.numbers));
  call_.answer = {};
  call_.status = {};
  client_->start(call_);
}

bool Copier::end_copy() {
  is_under_way_ = false;
  if (call_.status.ok()) {
    server_.note_copy(copy_);
  } else if (call_.answer.is_owner != 0) {
    server_.give_way(copy_.shard, backup_, call_.answer.moves, call_.answer.steps);
  } else {
    drop(call_.status);
  }
  return true;
}

// Another backup must be found.
void Copier::drop(const Status& why) {
  log(LogLevel::kInfo, "a parameter server looks for another backup: " + why.message());
  client_.reset();
  is_under_way_ = false;
  misses_[backup_] = kMostMisses;  // it was lost
  backup_ = -1;
  server_.set_backup(false);
}

size_t Copier::bytes() const {
  const std::lock_guard lock(mutex_);
  return copy_.numbers.capacity() * sizeof(float);
}

}  // namespace braid
