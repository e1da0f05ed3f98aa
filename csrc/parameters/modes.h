// SPDX-License-Identifier: Apache-2.0
// What a worker waits for, and who changes a shard.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

enum class Consistency : uint8_t {
  kAtomic,   // a pull sees whole updates of a shard.
  kRelaxed,  // workers of the server's host add to the shard by themselves (mapped_shard.h).
};
Result<Consistency> consistency_from_text(const std::string& text);  // "atomic", "relaxed"

// In all modes a worker that rests (CallKind::kRest) keeps nobody waiting until it pushes again. When the last worker
// rests, all wake with equal clocks. Otherwise shards could see workers wake in different orders, and disagree about
// who is ahead. In mode kSync a worker that rests cannot push before that. In mode kQuorum one that has never pushed
// rests on: it only looks on.
enum class Mode : uint8_t {
  kAsync,       // updates are applied as they come (Hogwild's order, but whole updates).
  kRoundRobin,  // as kAsync, but the workers take turns by number (You 2017, "Original EASGD").
  kSsp,         // stale synchronous parallel (Ho 2013): a worker waits while it is too far ahead.
  kSync,        // one update of the mean of all workers.
  kQuorum,      // as kSync, but a round ends without those who are late, or who rest.
};
// "async", "round_robin", "ssp", "sync", "quorum:at_least=2,grace_ms=500,mean_rounds=10,late=goes_on" without the last
// two words, or one of them
Result<Mode> mode_from_text(const std::string& text);

// When a round of kQuorum ends: all living workers have contributed, or so many have, and a grace period later.
struct Quorum {
  int at_least = 1;
  milliseconds grace{0};
  // So many rounds take the mean of the workers: the rule does not see them. Servers count rounds, so all agree.
  uint64_t mean_rounds = 0;
  // A push that is meant for a round that is over counts in the present one, and is answered at once. Else its worker
  // waits for the end of the present round. Needed where a worker has a round in several services, one after the other:
  // two workers could wait in two of them, each for the other one.
  bool late_goes_on = false;
};
// Of a mode that is kQuorum.
Result<Quorum> quorum_from_text(const std::string& text);

}  // namespace braid
