// SPDX-License-Identifier: Apache-2.0
// Prepared operations: small operations that were run before, laid out to be run again.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "communicator/communicator.h"
#include "executor/single_round.h"
#include "transport/frame.h"

namespace braid {

struct Route;

struct PreparedOperation {
  Signature signature;
  const Route* route = nullptr;
  std::vector<size_t> input_bytes;  // size of each block
  std::vector<size_t> output_bytes;
  SingleRound round;
};

// The group's mutex guards the list. The carrier uses one entry without the mutex: no entry is removed while it runs.
class PreparedOperations {
 public:
  // The prepared operation of this kind and with blocks of these sizes, or null.
  PreparedOperation* find(const Operation& operation);
  // Prepares an operation, if it can be prepared. Forgets the oldest one if there are too many. REQUIRES: find()
  // is null for it; the operation was checked; all ranks are on this host.
  void prepare(const Operation& operation, const Route& route, Node rank);

 private:
  std::list<PreparedOperation> known_;  // the newest first
};

}  // namespace braid
