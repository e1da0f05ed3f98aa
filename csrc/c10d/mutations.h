// SPDX-License-Identifier: Apache-2.0
// Faults that tests put into the code for accelerators, to see that a test catches each. Only an adapter that is
// built with BRAID_TEST_MUTATIONS has them.
#pragma once

#include <atomic>
#include <cstdint>

namespace braid::adapter {

enum class Mutation : uint8_t {
  kNone,
  kNoEventBeforeCopyDown,   // The copy down does not wait for the caller's stream.
  kHostDoesNotAwait,        // The operation starts before its inputs are on the host.
  kWaitDoesNotBlock,        // Wait() lets the caller's stream go on.
  kFutureWithoutDevices,    // The future knows no device.
  kFutureOnWrongStream,     // The future records its event on the default stream.
  kInputsNotKept,           // Inputs may be freed before they are copied.
  kPinnedReleasedEarly,     // Pinned memory is freed before the copy up has run.
  kOutputsReleasedEarly,    // Outputs may be freed before the copy up has run.
  kSequenceTakenLate,       // Operations on CPU tensors pass those that wait for a device.
  kBarrierPassesQueue,      // Barriers do so.
  kPieceNotAwaited,         // An operation that has its first piece reads the others before they are there.
  kUnsettledSentUp,         // A piece is copied up before it is settled.
  kGateIgnored,             // Copies up do not wait for their flag.
  kGateOpenedEarly,         // A flag is set before its piece is settled.
  kInputsOverwritten,       // Copies up do not wait for inputs that lie where an output is written.
  kLegPassesCaller,         // The local leg does not wait for the caller's stream.
  kLegPassesFlat,           // It does not wait for operations without it.
  kLegPassed,               // Operations without it do not wait for it.
  kLegNotJoined,            // wait() lets the caller's stream go on.
  kLegMemoryNotKept,        // Outputs may be freed before the leg has written them.
  kLegFutureOnWrongStream,  // The future records its event on the caller's stream.
  kLegShardNotAwaited,      // A shard is sent between hosts before it is reduced within the host.
};

#ifdef BRAID_TEST_MUTATIONS
inline std::atomic<Mutation> chosen_mutation{Mutation::kNone};
inline bool mutated(Mutation mutation) { return chosen_mutation.load() == mutation; }
#else
constexpr bool mutated(Mutation) { return false; }
#endif

}  // namespace braid::adapter
