// SPDX-License-Identifier: Apache-2.0
// An all_reduce through aggregators. The aggregator group, which has the ranks and the aggregators, does it. Then
// the ranks vote on whether it worked on all of them. If it did not, the inputs are unchanged and the ranks do it
// without aggregators.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "aggregator/vote.h"
#include "communicator/communicator.h"
#include "memory/pool.h"
#include "transport/doorbell.h"

namespace braid {

// The order that the first rank sends to each aggregator before every operation of the aggregator group.
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
// Nothing if the bytes are no valid order.
std::optional<AggregationOrder> order_from_bytes(const std::array<std::byte, kOrderBytes>& bytes);

class AggregatedAllReduce {
 public:
  // `group` is the aggregator group: its nodes 0..ranks-1 are the ranks of `mailbox`, the others are aggregators.
  // An input that is also the output is copied to memory of the pool until the vote. `bell` is rung when the group
  // is done. A group that does not answer within `patience` has failed.
  AggregatedAllReduce(std::shared_ptr<Communicator> group, int aggregators, Mailbox& mailbox, Node rank, int ranks,
                      uint64_t sequence, Operation operation, Pool& pool, DoorbellWord& bell,
                      milliseconds patience);

  // True once all ranks have voted, or the mailbox has failed.
  bool advance();
  // status(): how the mailbox failed, if it did. carried(): whether all ranks have the result. REQUIRES: advance()
  // returned true.
  const Status& status() const { return vote_->status(); }
  bool carried() const { return vote_->all_said_yes(); }
  // Why it failed, as far as this rank knows.
  const Status& trouble() const { return trouble_; }
  // The unchanged operation, to be run another way. Its input lives as long as this object.
  const Operation& operation() const { return operation_; }

  // Ends the aggregator group, if the mailbox has failed. True once nothing uses the operation's memory; call it
  // again until then.
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
  std::vector<std::shared_ptr<Work>> works_;  // the sends of the orders, then the operation
  Status trouble_;
  std::optional<Vote> vote_;
  bool abandoned_ = false;
};

}  // namespace braid
