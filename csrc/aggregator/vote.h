// SPDX-License-Identifier: Apache-2.0
// A vote on whether an operation worked on all ranks. Each rank says yes or no. All ranks learn whether all said
// yes. Never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/mailbox.h"

namespace braid {

// One vote about collective `sequence`. The mailbox must outlive it. Before an early destruction, end the mailbox.
class Vote {
 public:
  Vote(Mailbox& mailbox, Node rank, int ranks, uint64_t sequence, bool yes);

  // True when the outcome is known, or the mailbox has failed.
  bool advance();
  // The mailbox's failure, if any. REQUIRES: advance() returned true.
  const Status& status() const { return status_; }
  bool all_said_yes() const { return outcome_ != 0; }

 private:
  bool collect();  // on the first rank: counts the votes and tells the others

  Mailbox& mailbox_;
  const Node rank_;
  const Tag ballots_, result_;
  uint64_t ballot_ = 0;
  uint64_t outcome_ = 0;
  std::vector<uint64_t> heard_;  // on the first rank: the votes of the others
  std::unique_ptr<Request[]>
      requests_;  // on the first rank: one per other rank; else: send to it, receive from it
  size_t open_ = 0;
  bool telling_ = false;
  Status status_;
};

}  // namespace braid
