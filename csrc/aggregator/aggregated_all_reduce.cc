// SPDX-License-Identifier: Apache-2.0
#include "aggregator/aggregated_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/caught.h"

namespace braid {

std::array<std::byte, kOrderBytes> to_bytes(const AggregationOrder& order) {
  std::array<std::byte, kOrderBytes> bytes{};
  bytes[0] = std::byte{order.kind};
  bytes[1] = std::byte{order.dtype};
  bytes[2] = std::byte{order.op};
  std::memcpy(bytes.data() + 8, &order.bytes, sizeof order.bytes);
  std::memcpy(bytes.data() + 16, &order.timeout_ms, sizeof order.timeout_ms);
  return bytes;
}

std::optional<AggregationOrder> order_from_bytes(const std::array<std::byte, kOrderBytes>& bytes) {
  AggregationOrder order{static_cast<uint8_t>(bytes[0]), static_cast<uint8_t>(bytes[1]),
                         static_cast<uint8_t>(bytes[2])};
  std::memcpy(&order.bytes, bytes.data() + 8, sizeof order.bytes);
  std::memcpy(&order.timeout_ms, bytes.data() + 16, sizeof order.timeout_ms);
  const bool known = order.kind < kCollectiveKindCount && order.dtype < kDTypeCount && order.op < kReduceOpCount;
  if (!known || order.timeout_ms < 0) return std::nullopt;
  return order;
}

AggregatedAllReduce::AggregatedAllReduce(std::shared_ptr<Communicator> group, int aggregators, Mailbox& mailbox,
                                         Node rank, int ranks, uint64_t sequence, Operation operation, Pool& pool,
                                         DoorbellWord& bell, milliseconds patience)
    : group_(std::move(group)),
      mailbox_(mailbox),
      rank_(rank),
      ranks_(ranks),
      sequence_(sequence),
      operation_(std::move(operation)) {
  ConstBytes& input = operation_.inputs[0];
  if (!input.empty() && input.data() == operation_.outputs[0].data()) {
    kept_ = pool.take(input.size());
    std::memcpy(kept_.data(), input.data(), input.size());
    input = {kept_.data(), input.size()};
  }
  order_ = to_bytes({static_cast<uint8_t>(operation_.kind), static_cast<uint8_t>(operation_.dtype),
                     static_cast<uint8_t>(operation_.op), input.size(), patience.count()});
  const auto began = [&](Result<std::shared_ptr<Work>> work) {
    if (work.ok()) {
      works_.push_back(std::move(work).value());
      // The last message rings the bell before its work ends on another thread. So ring again.
      works_.back()->on_done([&bell](const Status&) { ring(bell); });
    } else if (trouble_.ok()) {
      trouble_ = work.status();
    }
  };
  Operation asked = operation_;
  asked.timeout = patience;
  works_.reserve(static_cast<size_t>(aggregators) + 1);
  const Status thrown = caught("asking aggregators", [&] {
    for (Node node = ranks; rank == 0 && node < ranks + aggregators; ++node) {
      began(group_->send(node, kOrderTag, order_, patience));
    }
    began(group_->start(std::move(asked), false));
  });
  if (!thrown.ok())
    trouble_ = thrown;  // started works use this object's memory, so advance() waits for them before the vote
}

bool AggregatedAllReduce::group_is_done() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->done(); });
}

bool AggregatedAllReduce::advance() {
  if (!vote_) {
    if (!group_is_done()) return false;
    for (const auto& work : works_) {
      if (trouble_.ok()) trouble_ = work->status();
    }
    vote_.emplace(mailbox_, rank_, ranks_, sequence_, trouble_.ok());
  }
  return vote_->advance();
}

bool AggregatedAllReduce::abandon(const Status& why) {
  if (!abandoned_) group_->abort(why.message());
  abandoned_ = true;
  return group_is_done();
}

}  // namespace braid
