// SPDX-License-Identifier: Apache-2.0
#include "aggregator/aggregator.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "aggregator/aggregated_all_reduce.h"
#include "aggregator/registry.h"
#include "base/limits.h"
#include "communicator/process.h"

namespace braid {
namespace {

// How often a waiting aggregator asks whether to stop.
constexpr milliseconds kLookUp{200};
constexpr milliseconds kForming{60'000};
// Pause after a failed attempt to join. It doubles with each failure.
constexpr milliseconds kShortestPause{10'000};
constexpr milliseconds kLongestPause{300'000};

class Service {
 public:
  Service(std::shared_ptr<Communicator> group, const ServerCalls& calls)
      : group_(std::move(group)), calls_(calls) {}
  ~Service() { end_group(std::move(group_)); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Works until the group has ended or failed, or this aggregator is stopped. Returns the reason.
  Status run() {
    for (;;) {
      std::array<std::byte, kOrderBytes> bytes;
      if (Status over = finish(group_->recv(0, kOrderTag, bytes, milliseconds(0))); !over.ok()) return over;
      const auto order = order_from_bytes(bytes);
      if (!order || order->kind != static_cast<uint8_t>(CollectiveKind::kAllReduce)) {
        return {Code::kMismatch, "the first rank asks for what no aggregator can do; is it of another version?"};
      }
      if (order->bytes > kMostOrderedBytes) {
        return {Code::kMismatch,
                too_large("the all_reduce that the first rank orders", order->bytes, kMostOrderedBytes)};
      }
      Operation operation;
      operation.kind = CollectiveKind::kAllReduce;
      operation.dtype = static_cast<DType>(order->dtype);
      operation.op = static_cast<ReduceOp>(order->op);
      operation.bytes = order->bytes;
      operation.timeout = milliseconds(std::min(order->timeout_ms, kMostOrderedTime_ms));
      if (Status over = finish(group_->start(std::move(operation), false)); !over.ok()) return over;
      ++done_;
    }
  }
  uint64_t done() const { return done_; }

 private:
  Status finish(const Result<std::shared_ptr<Work>>& work) {
    if (!work.ok()) return work.status();
    while (!work.value()->done()) {
      static_cast<void>(work.value()->wait(Clock::now() + kLookUp));
      if (calls_.stopped()) group_->abort("an aggregator leaves");  // ends the wait at once
    }
    return work.value()->status();
  }

  std::shared_ptr<Communicator> group_;
  const ServerCalls& calls_;
  uint64_t done_ = 0;
};

// Joins a group and works for it until it ends. False if it could not join.
bool work_for(const Appointment& place, const std::shared_ptr<Store>& store, Options options,
              const ServerCalls& calls) {
  options.algorithm.clear();
  options.aggregators = place.aggregators;
  options.chunk_bytes = place.chunk_bytes;
  options.window = place.window;
  if (!options.stated) options.links = place.links;
  options.await_servers = -1;
  options.timeout = kForming;
  auto group = make_group(store, place.ranks + place.index, place.ranks + place.aggregators, place.group, options);
  if (!group.ok()) {
    calls.say("could not join: " + group.status().message());
    return false;
  }
  group.value()->set_timeout(milliseconds(0));  // it may take long until the next order comes
  calls.say("aggregator " + std::to_string(place.index + 1) + " of " + std::to_string(place.aggregators) +
            " for " + std::to_string(place.ranks) + " ranks");
  Service service(std::move(group).value(), calls);
  const Status over = service.run();
  calls.say("over after " + std::to_string(service.done()) + " all_reduces: " + over.message());
  return true;
}

}  // namespace

Status serve(const std::shared_ptr<Store>& store, const Options& options, const ServerCalls& calls) {
  Candidacy candidacy(store);
  milliseconds pause = kShortestPause;
  while (!calls.stopped()) {
    if (Status bad = candidacy.offer(); !bad.ok()) return bad;
    auto answer = Result<Candidacy::Answer>(Candidacy::Answer::kNotYet);
    Appointment place;
    while (answer.ok() && answer.value() == Candidacy::Answer::kNotYet && !calls.stopped()) {
      answer = candidacy.await(Clock::now() + kLookUp, &place);
    }
    if (!answer.ok()) return answer.status();
    if (answer.value() == Candidacy::Answer::kNotYet || answer.value() == Candidacy::Answer::kPassedOver) continue;
    if (answer.value() == Candidacy::Answer::kAppointed && work_for(place, store, options, calls)) {
      pause = kShortestPause;
    } else {  // withdraw for a while: ranks wait in vain each time they ask an aggregator that cannot join
      candidacy.withdraw();
      const Deadline again = Clock::now() + std::exchange(pause, std::min(2 * pause, kLongestPause));
      while (Clock::now() < again && !calls.stopped()) std::this_thread::sleep_for(kLookUp);
    }
  }
  candidacy.withdraw();
  return {};
}

}  // namespace braid
