// SPDX-License-Identifier: Apache-2.0
// Calls of a worker to a server, and the server's answers. A call is a Call, then its table of numbers if it has one,
// then its body. An answer is an Answer, then its body. Calls of one worker to one server are answered in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "parameters/coding.h"
#include "rules/rule.h"

namespace braid {

inline constexpr uint32_t kCallVersion = 2;    // raised with every change of Call, RangeNumbers or Answer
inline constexpr uint32_t kMostRanges = 4096;  // of one table
inline constexpr size_t kMostSettingsBytes = 65536;
inline constexpr size_t kMostAnswerTextBytes = 4096;

enum class CallKind : uint8_t {
  kJoin = 1,  // body: the settings of the worker; answered when the server knows the worker
  kInstall,   // body: values of a shard that no server has yet
  kPush,      // body: an update
  kPull,      // answer: the values
  kPushPull,  // body: an update; answer: the values after it, or the elastic difference
  kAdopt,     // asks this server to take over the shard of a lost one; `base`: the version that the worker has
  kSnapshot,  // answer: the values and the rule's state
  kRestore,   // body: as the answer of kSnapshot
  kLeave,     // the worker needs this server no more
  kMap,       // answer: the handle of the shard's mapped memory (MappedShard), kMapTextBytes long
};
inline constexpr uint8_t kLastCallKind = static_cast<uint8_t>(CallKind::kMap);
std::string name_of(CallKind kind);
inline bool is_push(CallKind kind) { return kind == CallKind::kPush || kind == CallKind::kPushPull; }
inline std::string worker_text(int worker) { return "worker " + std::to_string(worker); }

// A server that leaves hands its shards over (handover.cc). Calls that belong to that say so.
enum class HandOver : uint8_t {
  kNo = 0,
  kYes,   // kAdopt, kSnapshot, kRestore: of a shard that its server gives away
  kKeep,  // kAdopt, to the server that wants to leave: there is no other one, it must stay
};

struct Call {
  uint32_t version = kCallVersion;
  CallKind kind = CallKind::kPull;
  HandOver hand_over = HandOver::kNo;
  uint16_t shard = 0;
  uint32_t ranges = 0;  // rows of the table; 0: the table of the worker's last call with one
  float scale = 1;      // the update is multiplied by it
  uint64_t count = 0;   // float32 numbers of the shard
  uint64_t base = 0;    // version of the values with which the worker computed the update, or of a restored shard
  uint64_t steps = 0;   // kRestore: updates so far
  uint64_t body_bytes = 0;
  uint32_t codec = 0;  // of the update (number_of(); 0: float32)
  uint32_t unused = 0;
  uint64_t more = 0;
};
static_assert(sizeof(Call) == 64);

// The numbers of a rule for a part of the vector. `end` counts elements of the whole vector, not of the shard.
struct RangeNumbers {
  uint64_t end = 0;
  RuleNumbers numbers;
};
using Table = std::vector<RangeNumbers>;

// After values and state, a hand-over has kMostTurns rows. The first: who pushed last, and how many rows follow. The
// others: a worker, and how many updates it has made.
struct Turn {
  int32_t worker = -1;
  uint32_t unused = 0;
  uint64_t clock = 0;
};
inline constexpr size_t kMostTurns = 1024;

// How many float32 a snapshot of the call's shard has, or takes to be restored.
inline size_t snapshot_floats(const Call& call, int state_vectors) {
  const size_t turns = call.hand_over == HandOver::kYes ? kMostTurns * sizeof(Turn) / sizeof(float) : 0;
  return call.count * (1 + static_cast<size_t>(state_vectors)) + turns;
}

enum class Verdict : uint8_t {
  kDone = 0,
  kFailed,  // `code` says how; the body has the reason
  kWait,    // kAdopt: not decided yet, ask again
  kSend,    // kAdopt: this worker installs the shard
};

struct Answer {
  uint32_t version = kCallVersion;
  Verdict verdict = Verdict::kDone;
  Code code = Code::kOk;
  uint16_t has_moved = 0;      // 1, with kFailed: nothing was done, because the shard goes to another server
  uint32_t staleness = 0;      // of the update: how many came between its base and it
  uint32_t codec = 0;          // of the values in the body, which then are a difference (coded_values.h)
  uint64_t shard_version = 0;  // number of updates in the values
  uint64_t steps = 0;          // kSnapshot
  uint64_t body_bytes = 0;
  uint64_t more[3] = {};
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
