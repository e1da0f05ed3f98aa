// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.h"
#include "parameters/client.h"
#include "parameters/shard.h"

namespace braid {

// Finds another server for the shard of one that is lost, or takes it there from one that leaves.
struct Rescue {
  int shard = 0;
  int from = -1;  // places in `servers`.
  int to = -1;
  bool is_hand_over = false;  // `from` lives, and gives values and state
  bool is_forced = false;     // all servers leave: `to` must stay
  bool is_share = false;      // `from` stays, and `to` has come late.
  bool is_frozen = false;     // if is_share: `from` has agreed.
  uint64_t workers = 0;       // of `to`, if is_share.
  // kFinding: who has the newest copy, and its version.
  int keeper = -1;
  uint64_t kept_version = 0;
  std::set<int> refused;  // places; of those that must stay, if is_forced.
  ClientCall call;
  enum class State {
    kFinding,     // asks all whether they have it already.
    kAsking,      // asks `to` to take over a lost shard.
    kInstalling,  // brings values there.
    kTaking,      // gets a snapshot from the server that leaves.
    kRestoring,   // brings it to `to`.
    kTelling,     // tells the former server.
    kKeeping,     // tells it that it must stay.
  } state = State::kFinding;
  bool lacks_memory = false;         // this worker cannot carry the shard.
  bool servers_lack_memory = false;  // one of those that have refused
  bool has_asked = false;            // since ask_at
  int asked = -1;                    // kFinding: the last place
  Floats taken;                      // values and state, on their way through this worker
  size_t taken_floats = 0;           // of these
  uint64_t version = 0;              // the same
  uint64_t steps = 0;
  uint64_t moves = 0;
  Status why;  // the loss of the former server
  Clock::time_point ask_at;
  Deadline due = kNoDeadline;

  void take_memory(size_t floats) {
    taken = make_floats(floats);
    taken_floats = floats;
  }
  Bytes carried() const { return std::as_writable_bytes(std::span(taken.get(), taken_floats)); }
  size_t bytes() const { return taken ? taken_floats * sizeof(float) : 0; }
};

}  // namespace braid
