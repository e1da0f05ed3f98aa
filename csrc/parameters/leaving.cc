// SPDX-License-Identifier: Apache-2.0
// Servers that leave, and what their workers do: calls that were refused wait until their shard has a new home, and go
// there in the order of their requests. A worker that needs the server no more tells it, so that it can end.
#include "base/log.h"
#include "parameters/service.h"

namespace braid {
namespace {

// How soon a worker repeats its farewell to a server that still holds a shard.
constexpr milliseconds kFarewellAgain{50};

}  // namespace

void ParameterService::leave() {
  if (server_ && !is_worker_) server_->leave();
}

bool ParameterService::is_leaving() const { return server_ && server_->is_leaving(); }

// The server of a part has refused it, because its shard goes elsewhere. False if it was not that.
bool ParameterService::tend_moved_part(size_t shard, ParameterRequest& request) {
  ClientCall& call = request.calls_[shard];
  if (call.answer.has_moved == 0) return false;
  const int place = request.places_[shard];
  const uint64_t moved_to = call.answer.moved_to;
  if (homes_[shard].load() == place && !rescues_[shard]) {
    if (moved_to > 0 && moved_to <= clients_.size() && call.answer.moves > moves_[shard]) {
      const uint64_t left = call.answer.shard_version;
      if (left != Losses::kNone) count_lost(shard, left, call.answer.moves);
      end_rescue(shard, static_cast<int>(moved_to) - 1, call.answer.moves);
    } else {
      begin_rescue(shard, {Code::kAborted, server_text_at(place) + " gives a shard away"}, true);
    }
  }
  repeat(shard, request);
  return true;
}

bool ParameterService::may_start(size_t shard, const ParameterRequest* request) const {
  if (rescues_[shard]) return false;
  const int home = homes_[shard].load();
  if (!is_known(home)) return false;
  for (const Request& earlier : open_) {
    if (earlier.get() == request) break;
    const ClientCall& call = earlier->calls_[shard];
    if (earlier->is_parked_[shard]) return false;
    if (call.is_over() ? !call.status.ok() : earlier->places_[shard] != home) return false;
  }
  return true;
}

// Starts calls that waited, or fails them if this worker can go on no more. True if any began.
bool ParameterService::start_parked(ParameterRequest& request) {
  bool moved = false;
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    if (!request.is_parked_[shard] || (failure_.ok() && !may_start(shard, &request))) continue;
    ClientCall& call = request.calls_[shard];
    request.is_parked_[shard] = false;
    request.places_[shard] = homes_[shard].load();
    call.call.moves = moves_[shard];
    call.deadline = call_deadline();
    start_call(shard, request, failure_);
    moved = true;
  }
  return moved;
}

bool ParameterService::say_farewells() {
  bool moved = false;
  for (auto at = farewells_.begin(); at != farewells_.end();) {
    const int place = at->first;
    Farewell& farewell = at->second;
    Client& client = *clients_[static_cast<size_t>(place)];
    ClientCall& call = farewell.call;
    if (farewell.is_sent && call.is_over()) {
      moved = true;
      const bool is_due_again = call.status.ok() && call.answer.verdict == Verdict::kWait;
      if (is_due_again) {
        farewell.is_sent = false;
        farewell.at = Clock::now() + kFarewellAgain;
      } else {
        if (call.status.ok()) {
          client.fail({Code::kAborted, "the parameter server has left"});
          lost_[static_cast<size_t>(place)].store(true);
        }
        at = farewells_.erase(at);  // else it stays, or is lost
        continue;
      }
    }
    ++at;
    if (farewell.is_sent || Clock::now() < farewell.at || is_needed(place)) continue;
    call.call = {};
    call.answer = {};
    call.call.kind = CallKind::kLeave;
    call.call.hand_over = HandOver::kYes;
    call.deadline = call_deadline();
    farewell.is_sent = true;
    client.start(call);
    moved = true;
  }
  return moved;
}

// A server refuses calls for its shards when it leaves. One that holds none gets a call for this alone.
bool ParameterService::attend_idle_servers() {
  if (!failure_.ok()) return false;
  bool moved = false;
  for (size_t at = 0; at < places(); ++at) {
    const auto place = static_cast<int>(at);
    ClientCall& call = attends_[at];
    const bool may_leave = server_at(setup_, place) >= kFirstAlone;
    if (!may_leave || !call.is_over() || is_lost(place) || farewells_.contains(place)) continue;
    if (call.answer.has_moved != 0) {
      farewells_.try_emplace(place);
      call.answer = {};
      call.status = {};
      moved = true;
      continue;
    }
    if (!call.status.ok() || is_home(place)) continue;
    call.call = {};
    call.call.kind = CallKind::kAttend;
    call.call.shard = static_cast<uint16_t>(extents_.size());
    clients_[at]->start(call);
    moved = true;
  }
  return moved;
}

// Whether requests go to the server at this place.
bool ParameterService::is_home(int place) const {
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    if (is_asked(shard) && homes_[shard].load() == place) return true;
  }
  return false;
}

// Whether this worker may still have to do with the server at this place.
bool ParameterService::is_needed(int place) const {
  for (size_t shard = 0; shard < extents_.size(); ++shard) {
    if (is_asked(shard) && homes_[shard].load() == place) return true;
    const auto& rescue = rescues_[shard];  // it may be carrying the shard from or to that server
    if (rescue && (rescue->from == place || rescue->to == place || rescue->asked == place)) return true;
    for (const Request& request : open_) {
      const bool is_under_way = !request->is_parked_[shard] && !request->calls_[shard].is_over();
      if (is_under_way && request->places_[shard] == place) return true;
    }
  }
  return false;
}

}  // namespace braid
