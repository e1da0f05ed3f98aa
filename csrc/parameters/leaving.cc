// SPDX-License-Identifier: Apache-2.0
// Servers that leave, and what their workers do: calls that were refused are repeated at the shard's new home. A worker
// that needs the server no more tells it, so that it can end.
#include "base/log.h"
#include "parameters/service.h"

namespace braid {

void ParameterService::leave() {
  if (server_ && !is_worker_) server_->leave();
}

bool ParameterService::is_leaving() const { return server_ && server_->is_leaving(); }

// The server of a part has refused it, because its shard goes elsewhere. If several parts of a request were refused,
// they are repeated one after the other, by number: a server answers a worker's calls in their order, and workers that
// wait for each other must come to all shards in the same order.
void ParameterService::tend_moved_part(size_t shard, ParameterRequest& request, bool is_first) {
  if (homes_[shard].load() != request.places_[shard]) {
    if (is_first) repeat(shard, request);
    return;
  }
  const int server = setup_.servers[static_cast<size_t>(request.places_[shard])];
  begin_rescue(shard, {Code::kAborted, server_text(server) + " leaves"}, true);
}

void ParameterService::repeat(size_t shard, ParameterRequest& request) {
  ClientCall& call = request.calls_[shard];
  call.answer = {};
  call.status = {};
  call.deadline = call_deadline();
  request.places_[shard] = homes_[shard].load();
  // What a coded push would have brought lies in the residual again, and travels with the repeated one.
  if (is_push(call.call.kind) && residuals_.codec()) call.call.scale = 0;
  start_call(shard, request, failure_);
}

bool ParameterService::say_farewells() {
  bool moved = false;
  for (auto& [place, call] : farewells_) {
    const auto at = static_cast<size_t>(place);
    if (lost_[at].load()) continue;
    if (call.call.kind == CallKind::kLeave) {
      if (!call.is_over()) continue;
      clients_[at]->fail({Code::kAborted, "the parameter server has left"});
      lost_[at].store(true);
      moved = true;
      continue;
    }
    bool is_needed = false;
    for (size_t shard = 0; shard < extents_.size(); ++shard) {
      is_needed |= homes_[shard].load() == place;
      const auto& rescue = rescues_[shard];  // it may be carrying the shard from or to that server
      is_needed |= rescue && (rescue->from == place || rescue->to == place);
      for (const Request& request : open_) {
        is_needed |= request->places_[shard] == place && !request->calls_[shard].is_over();
      }
    }
    if (is_needed) continue;
    call.call.kind = CallKind::kLeave;
    clients_[at]->start(call);
    moved = true;
  }
  return moved;
}

}  // namespace braid
