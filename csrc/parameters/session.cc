// SPDX-License-Identifier: Apache-2.0
#include "parameters/session.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {

Session::Session(Server& server, int worker, std::string name, std::unique_ptr<Pair> pair)
    : state_{server, worker, std::move(name), std::move(pair)} {
  for (size_t lane = 0; lane <= server.extents().size() + 1; ++lane) lanes_.emplace_back(state_, lane);
}

Session::~Session() { end({Code::kAborted, "the server ends"}); }

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

// A worker that leaves has the answers of all its calls first. In the last lane it waits for this server to leave.
bool Session::let_leave() {
  CallLane& first = lanes_.front();
  if (!first.is_leaving()) return false;
  if (!std::all_of(lanes_.begin() + 1, lanes_.end() - 1, [](const CallLane& lane) { return lane.is_idle(); }))
    return false;
  first.let_leave();
  return true;
}

// The pair ends before buffers go back: until then its requests use their memory.
void Session::end(const Status& why) {
  if (std::exchange(is_over_, true)) return;
  for (CallLane& lane : lanes_) lane.cancel();
  if (!why.ok()) {
    state_.pair->fail(why);
  } else {
    state_.pair->close();
  }
  for (CallLane& lane : lanes_) lane.give_buffer_back();
  const bool is_lost = !why.ok() && why.code() != Code::kAborted;
  const std::string loss = state_.name + " is lost: " + why.message();
  if (state_.has_joined && state_.pair->was_given_up()) state_.server.note_given_up(state_.worker);
  if (state_.has_joined) state_.server.dismiss(state_.worker, !why.ok(), is_lost ? loss : "");
  if (!state_.has_joined) {
    state_.server.has_heard(state_.worker);  // a refused worker leaves when it has the reason
  } else if (is_lost) {
    log(is_source(state_.worker) ? LogLevel::kInfo : LogLevel::kWarning,
        "a parameter server goes on without " + state_.name + ": " + why.message());
  }
}

}  // namespace braid
