// SPDX-License-Identifier: Apache-2.0
#include "parameters/session.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {

Session::Session(Server& server, int worker, std::unique_ptr<Pair> pair)
    : state_{server, worker, std::move(pair)} {
  for (size_t lane = 0; lane <= server.extents().size(); ++lane) lanes_.emplace_back(state_, lane);
}

Session::~Session() {
  if (!is_over_) end({Code::kAborted, "the server ends"});
}

bool Session::poll() {
  if (is_over_) return false;
  bool moved = state_.pair->poll();
  const Status bad = caught("serving a worker", [&] {
    for (CallLane& lane : lanes_) {
      moved |= lane.poll();
      if (!lane.is_over()) continue;
      end(lanes_.front().has_left() ? Status() : lane.why());
      return;
    }
    moved |= let_leave();
  });
  if (!bad.ok()) end(bad);
  return moved;
}

// A worker that leaves has the answers of all its calls first.
bool Session::let_leave() {
  CallLane& first = lanes_.front();
  if (!first.is_leaving()) return false;
  if (!std::all_of(lanes_.begin() + 1, lanes_.end(), [](const CallLane& lane) { return lane.is_idle(); }))
    return false;
  first.let_leave();
  return true;
}

// The pair ends before buffers go back: until then its requests use their memory.
void Session::end(const Status& why) {
  is_over_ = true;
  for (CallLane& lane : lanes_) lane.cancel();
  if (!why.ok()) {
    state_.pair->fail(why);
  } else {
    state_.pair->close();
  }
  for (CallLane& lane : lanes_) lane.give_buffer_back();
  state_.server.dismiss(state_.worker, !why.ok());
  if (!state_.has_joined) {
    state_.server.has_heard(state_.worker);  // a refused worker leaves when it has the reason
  } else if (!why.ok() && why.code() != Code::kAborted) {
    log(LogLevel::kWarning,
        "a parameter server goes on without " + worker_text(state_.worker) + ": " + why.message());
  }
}

}  // namespace braid
