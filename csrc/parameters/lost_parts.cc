// SPDX-License-Identifier: Apache-2.0
// Parts of requests that went to a server that died, and updates that were lost with it.
#include <algorithm>
#include <utility>

#include "parameters/service.h"

namespace braid {

// A part of the request went to a server that died. Once the shard has another home, its values are pulled from there,
// and a rest is said again. False if the part cannot be had.
bool ParameterService::tend_lost_part(size_t shard, ParameterRequest& request) {
  const CallKind kind = request.kind_;
  const bool has_no_body = kind == CallKind::kRest || kind == CallKind::kLook;
  const bool is_first = kind == CallKind::kInstall;
  if (!is_push(kind) && kind != CallKind::kPull && !has_no_body && !is_first) return false;
  if (!is_lost(request.places_[shard])) return false;
  if (homes_[shard].load() == request.places_[shard]) {
    begin_rescue(shard, request.calls_[shard].status, false);
    return failure_.ok();
  }
  ClientCall& call = request.calls_[shard];
  if (call.has_begun_to_arrive && request.newest_ == kept_.values) kept_.is_mixed[shard] = true;
  // In rounds of all a push has a number, so the shard's next server knows whether it counts already. Where values are
  // installed already, others are ignored.
  if (is_first || (is_push(call.call.kind) && setup_.server.mode == Mode::kSync)) {
    repeat(shard, request);
    return true;
  }
  if (is_push(call.call.kind)) {
    ++lost_parts_;
    ++request.lost_parts_;
  }
  if (!has_no_body) call.call.kind = CallKind::kPull;
  call.table = nullptr;
  call.body = {};
  call.call.ranges = 0;
  call.call.steps = call.call.place = 0;
  call.answer = {};
  call.status = {};
  // The elastic difference of a lost part is zero: worker and centre stay where they are.
  if (is_elastic() && kind == CallKind::kPushPull) std::fill(call.into.begin(), call.into.end(), std::byte{0});
  if (kind == CallKind::kPush || (is_elastic() && kind == CallKind::kPushPull)) {
    call.answer.shard_version = versions_[shard];
    call.finish({});
    return true;
  }
  request.is_parked_[shard] = true;
  return true;
}

// Starts the part again, where the shard will be. What a coded push would have brought lies in the residual.
void ParameterService::repeat(size_t shard, ParameterRequest& request) {
  ClientCall& call = request.calls_[shard];
  if (is_push(call.call.kind) && residuals_.codec()) call.call.scale = 0;
  call.answer = {};
  call.status = {};
  request.is_parked_[shard] = true;
}

// ---- Updates that were applied

void ParameterService::note_push(size_t shard, ParameterRequest& request) {
  const ClientCall& call = request.calls_[shard];
  if (std::exchange(request.is_noted_[shard], true) || !is_push(call.call.kind)) return;
  // It was answered before the end of its round.
  const bool is_late = setup_.server.quorum.late_goes_on && call.answer.staleness > 0;
  Pushed& pushed = pushed_[shard];
  pushed.versions.push_back(call.answer.shard_version + (is_late ? 1 : 0));
  if (pushed.versions.size() <= kMostNoted) return;
  ++pushed.older;
  pushed.newest_older = std::max(pushed.newest_older, pushed.versions.front());
  pushed.versions.pop_front();
}

void ParameterService::end_loss(size_t shard, int home, const Answer& answer) {
  const uint64_t moves = answer.moves;  // the answer goes with the rescue
  if (answer.steps != Losses::kNone) count_lost(shard, answer.steps, moves);
  end_rescue(shard, home, moves);
}

void ParameterService::count_lost(size_t shard, uint64_t left, uint64_t moves) {
  Pushed& pushed = pushed_[shard];
  lost_parts_ += std::erase_if(pushed.versions, [left](uint64_t version) { return version > left; });
  if (left < pushed.newest_older) {  // a version has one update of this worker, unless late ones go on
    uint64_t lost = pushed.older;
    if (!setup_.server.quorum.late_goes_on) lost = std::min(lost, pushed.newest_older - left);
    lost_parts_ += lost;
    pushed.older -= lost;
    pushed.newest_older = left;
  }
  losses_[shard].add(std::max(moves, moves_[shard]), left);
  if (is_elastic()) return;
  // Values of a later version hold what is lost. They are no more than those from which the shard has gone on.
  versions_[shard] = std::min(versions_[shard], left);
  for (const Request& request : open_) {
    ClientCall& call = request->calls_[shard];
    if (request->is_parked_[shard] || !call.is_over() || !call.status.ok()) continue;
    call.answer.shard_version = std::min(call.answer.shard_version, left);
  }
}

}  // namespace braid
