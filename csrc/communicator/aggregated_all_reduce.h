// SPDX-License-Identifier: Apache-2.0
// An all_reduce that goes through aggregators: a group of the ranks and them, the aggregator group, carries it; then the ranks vote
// on whether it worked everywhere. If it did not, the inputs are still there, and it is done without them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/vote.h"
#include "memory/pool.h"
#include "transport/doorbell.h"

namespace braid {

// What the first rank tells an aggregator before each operation of the aggregator group.
struct AggregationOrder {
  uint8_t kind = 0;  // CollectiveKind
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint64_t bytes = 0;
  int64_t timeout_ms = 0;
};
inline constexpr uint32_t kOrderTag = 0;
inline constexpr size_t kOrderBytes = 24;
std::array<std::byte, kOrderBytes> to_bytes(const AggregationOrder& order);
// Nothing where the bytes make no sense.
std::optional<AggregationOrder> order_from_bytes(const std::array<std::byte, kOrderBytes>& bytes);

class AggregatedAllReduce {
 public:
  // `group`: nodes 0..ranks-1 are the ranks of `mailbox`, the others aggregators. An input that is also the output is
  // kept in memory of the pool, until the vote. `bell` is rung when the aggregator group is done. An aggregator group that does not
  // answer within `patience` has failed.
  AggregatedAllReduce(std::shared_ptr<Communicator> group, int aggregators, Mailbox& mailbox, Node rank, int ranks,
                      uint64_t sequence, Operation operation, Pool& pool, DoorbellWord& bell,
                      milliseconds patience);

  // True when it is known what became of it, or the mailbox has failed.
  bool advance();
  // REQUIRES (both): advance() returned true. A failure of the mailbox's; and whether all ranks have the result.
  const Status& status() const { return vote_->status(); }
  bool carried() const { return vote_->all_said_yes(); }
  // Why not, as far as this rank knows.
  const Status& trouble() const { return trouble_; }
  // The operation, as it was, to be run another way. The AggregatedAllReduce holds its input's memory.
  const Operation& operation() const { return operation_; }

  // The mailbox has failed: ends the aggregator group. True once nothing uses the operation's memory any more.
  bool abandon(const Status& why);

 private:
  bool group_is_done() const;

  const std::shared_ptr<Communicator> group_;
  Mailbox& mailbox_;
  const Node rank_;
  const int ranks_;
  const uint64_t sequence_;
  PoolBlock kept_;
  Operation operation_;
  std::array<std::byte, kOrderBytes> order_{};
  std::vector<std::shared_ptr<Work>> works_;  // orders, and last the operation
  Status trouble_;
  std::optional<Vote> vote_;
  bool abandoned_ = false;
};

}  // namespace braid
