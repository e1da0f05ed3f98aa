// SPDX-License-Identifier: Apache-2.0
// Did it work on all ranks? Each says what it saw, and all hear whether all said yes. Never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/mailbox.h"

namespace braid {

// One vote about collective `sequence`. The mailbox outlives it; an early end needs a mailbox that has ended.
class Vote {
 public:
  Vote(Mailbox& mailbox, Node rank, int ranks, uint64_t sequence, bool yes);

  // True when the outcome is known, or the mailbox has failed.
  bool advance();
  // REQUIRES: advance() returned true. A failure of the mailbox's.
  const Status& status() const { return status_; }
  bool all_said_yes() const { return outcome_ != 0; }

 private:
  bool collect();  // by the first rank, that tells the others

  Mailbox& mailbox_;
  const Node rank_;
  const Tag ballots_, result_;
  uint64_t ballot_ = 0;
  uint64_t outcome_ = 0;
  std::vector<uint64_t> heard_;          // on the first rank
  std::unique_ptr<Request[]> requests_;  // on the first rank one per other; else to it, from it
  size_t open_ = 0;
  bool telling_ = false;
  Status status_;
};

}  // namespace braid
