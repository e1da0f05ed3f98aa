// SPDX-License-Identifier: Apache-2.0
// The wire format of a worker's calls to a server, and of the server's answers. A call is a Call, then its table of
// numbers if it has one, then its body. An answer is an Answer, then its body. Calls of one worker to one server go in
// lanes: one for each shard, and lane 0 for all that must not wait behind them. Calls of one lane are answered in order;
// lanes do not wait for each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "parameters/coding.h"
#include "parameters/losses.h"
#include "rules/rule.h"

namespace braid {

inline constexpr uint32_t kCallVersion = 11;   // raised with every change of Call, RangeNumbers or Answer
inline constexpr uint32_t kMostRanges = 4096;  // of one table
inline constexpr size_t kMostSettingsBytes = 65536;
inline constexpr size_t kMostAnswerTextBytes = 4096;

enum class CallKind : uint8_t {
  kJoin = 1,  // body: the settings of the worker; answered when the server knows the worker
  kInstall,   // body: values of a shard that no server has yet; of one that was lost, and then its Losses
  kPush,      // body: an update
  kPull,      // answer: the values
  kPushPull,  // body: an update; answer: the values after it, or the elastic difference
  kAdopt,     // asks this server to take over the shard of a lost one; `base`: the version that the worker has
  kSnapshot,  // answer: the values and the rule's state
  kRestore,   // body: as the answer of kSnapshot
  kLeave,     // the worker needs this server no more
  kMap,       // answer: the handle of the shard's mapped memory (MappedShard), kMapTextBytes long
  kFind,      // asks whether the shard is here: kDone, or kWait
  kMoved,     // tells the former server that the shard is at `place` now
  kRest,      // the worker pauses: nobody waits for it until its next push
  kLook,      // asks for the version of the shard alone
  kReplica,   // from a server to its backup; body: as of a kRestore in a hand-over; `base`: its version
  kOffer,     // asks a server that has come late how much it takes; `place` 1: it has its part
  kAttend,  // answered when the server leaves; `shard`: the number behind the last one, so it has a lane of its own
};
inline constexpr uint8_t kLastCallKind = static_cast<uint8_t>(CallKind::kAttend);
std::string name_of(CallKind kind);
inline bool is_push(CallKind kind) { return kind == CallKind::kPush || kind == CallKind::kPushPull; }
// A server that sends copies of its shards to this one is no worker, and has a number below 0: of its place.
inline int source_number(int place) { return -2 - place; }
inline int place_of_source(int number) { return -2 - number; }
inline bool is_source(int worker) { return worker <= -2; }
inline std::string worker_text(int worker) {
  return is_source(worker) ? "the server at place " + std::to_string(place_of_source(worker))
                           : "worker " + std::to_string(worker);
}

// A server that leaves hands its shards over (handover.cc). Calls that belong to that, or to a rescue, say so.
enum class HandOver : uint8_t {
  kNo = 0,
  kYes,  // kReplica: always; kSnapshot, kRestore: of a shard that its server gives away; kInstall: of one that was lost;
         // kLeave: to a server that leaves
  kKeep,   // kAdopt, kRestore: all other servers leave, too. This one must take or keep the shard, and stay
  kShare,  // kSnapshot: the server stays, and gives this shard to one that has come late; `base`: how many workers
           // that one has
};

struct Call {
  uint32_t version = kCallVersion;
  CallKind kind = CallKind::kPull;
  HandOver hand_over = HandOver::kNo;
  uint16_t shard = 0;
  uint32_t ranges = 0;  // rows of the table; 0: the table of the worker's last call with one.
  float scale = 1;      // the update is multiplied by it.
  uint64_t count = 0;   // float32 numbers of the shard
  // Version of the values with which the worker computed the update, or of a restored shard. Where a late push goes
  // on (Quorum): of the values that the round begins with for which the push is meant.
  uint64_t base = 0;
  // kRestore, kReplica: updates so far. kAdopt: what values the worker has (kNoValues, ...). Pushes: which one of this
  // worker it is, so that all shards count alike; 0: by the shard's own count. kInstall, in mode kSync: how many rounds
  // are in the values.
  uint64_t steps = 0;
  uint64_t body_bytes = 0;
  uint32_t codec = 0;  // of the update (number_of(); 0: float32)
  // kMoved: of the new server, in the list of servers. Pushes: 1 if the worker does not know its number, because it
  // has rested or come late.
  uint32_t place = 0;
  // How often the shard has moved, as the worker knows. kRestore, kMoved: with this move, as kFind, kAdopt and kInstall
  // of a shard that was lost. kReplica: as the owner knows.
  uint64_t moves = 0;
};
static_assert(sizeof(Call) == 64);

inline size_t lane_of(const Call& call) {
  switch (call.kind) {
    case CallKind::kJoin:
    case CallKind::kAdopt:
    case CallKind::kLeave:
    case CallKind::kFind:
    case CallKind::kMoved:
    case CallKind::kOffer: return 0;
    default: return call.hand_over == HandOver::kNo ? size_t{1} + call.shard : 0;
  }
}

// Of kAdopt: what the worker can bring.
inline constexpr uint64_t kNoValues = 0;     // nothing
inline constexpr uint64_t kNoMemory = 1;     // to carry what it has
inline constexpr uint64_t kMixedValues = 2;  // an answer was arriving when the server was lost: parts are newer
inline constexpr uint64_t kWholeValues = 3;

// The numbers of a rule for a part of the vector. `end` counts elements of the whole vector, not of the shard.
struct RangeNumbers {
  uint64_t end = 0;
  RuleNumbers numbers;
};
using Table = std::vector<RangeNumbers>;
bool same(const Table& a, const Table& b);  // to the bit

// After values and state, a hand-over has kMostTurns rows. The first: who pushed last, and how many rows follow. The
// others: a worker, how many updates it has made, and whether it rests. Its Losses come last.
struct Turn {
  static constexpr uint32_t kRests = 1;
  static constexpr uint32_t kHasNoClock = 2;
  int32_t worker = -1;
  uint32_t flags = 0;  // kRests, kHasNoClock; of the first row: rounds so far (kSync)
  uint64_t clock = 0;
};
inline constexpr size_t kMostTurns = 1024;
inline constexpr size_t kTurnFloats = kMostTurns * sizeof(Turn) / sizeof(float);

// How many float32 a snapshot of the call's shard has, or takes to be restored.
inline size_t snapshot_floats(const Call& call, int state_vectors) {
  const size_t more = call.hand_over != HandOver::kNo ? kTurnFloats + Losses::kFloats : 0;
  return call.count * (1 + static_cast<size_t>(state_vectors)) + more;
}
// The same for kInstall.
inline size_t install_floats(const Call& call) {
  return call.count + (call.hand_over != HandOver::kNo ? Losses::kFloats : 0);
}

// The body is a shard with the rule's state, or with what a rescue adds: larger than an update.
inline bool has_whole_body(const Call& call) {
  if (call.kind == CallKind::kInstall) return call.hand_over != HandOver::kNo;
  return call.kind == CallKind::kRestore || call.kind == CallKind::kReplica;
}

// The number under which the parts of a lane's call travel.
inline uint64_t lane_number(size_t lane, uint64_t call) { return uint64_t{lane} << 40 | call; }

enum class Verdict : uint8_t {
  kDone = 0,
  kFailed,  // `code` says how; the body has the reason
  kWait,    // kAdopt, kSnapshot, kLeave, kOffer: not yet, ask again; kFind: not here
  kSend,    // kAdopt: this worker installs the shard; kOffer: this worker brings shards
};

// Answer::has_moved: this server has no memory for the shard.
inline constexpr uint16_t kLacksMemory = 2;

struct Answer {
  uint32_t version = kCallVersion;
  Verdict verdict = Verdict::kDone;
  Code code = Code::kOk;
  // With kFailed: nothing was done. 1: the shard goes to another server; or kLacksMemory.
  uint16_t has_moved = 0;
  uint32_t staleness = 0;  // of the update: how many came between its base and it.
  uint32_t codec = 0;      // of the values in the body, which then are a difference (coded_values.h).
  uint64_t shard_version =
      0;  // number of updates in the values; kFind with kWait: in the copy; kOffer: of workers. With moved_to: as
          // `steps` of kFind.
  // kSnapshot: updates so far. Pushes: of this worker, as the shard counts them. In mode kSync, also with pulls: how
  // many rounds are in the values. kFind with kWait: 1 if a copy is here.
  // kOffer: the numbers that the server holds at most. kFind and kAdopt with kDone, kInstall: updates up to this
  // version are left, of those made before the call's move (Losses); 0 if the server knows of no such move.
  uint64_t steps = 0;
  uint64_t body_bytes = 0;
  uint64_t moves = 0;     // how often the shard has moved, as the server knows.
  uint64_t moved_to = 0;  // with has_moved: 1 + the place of its new server; 0: it is on its way.
  uint64_t is_owner = 0;  // kReplica: 1 if the backup holds the shard itself, so the sender must not
};
static_assert(sizeof(Answer) == 64);

// What a server's calls can be.
struct CallLimits {
  uint64_t most_count = 0;  // numbers of the largest shard
  int state_vectors = 0;
  std::optional<Codec> push;  // updates may come through it
};

// kMismatch with a reason, if a peer of this version cannot have sent this.
Status check(const Call& call, const CallLimits& limits);

}  // namespace braid
