// SPDX-License-Identifier: Apache-2.0
#include "aggregator/aggregator_discovery.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace braid {
namespace {

// How long an aggregator may take to answer.
constexpr milliseconds kAnswerWithin{2000};
constexpr milliseconds kLookAgain{50};
// After an aggregator group has ended, how long to wait until its aggregators come back.
constexpr milliseconds kComeBack{2000};
// An aggregator group that did this many operations was a success.
constexpr size_t kGoodGroup = 64;
constexpr int kMostPatience = 256;

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::string aggregators_text(size_t count) {
  return std::to_string(count) + (count == 1 ? " aggregator" : " aggregators");
}

Status AggregatorDiscovery::await(size_t awaited, Deadline deadline, const std::function<bool()>& stopped) {
  for (;;) {
    auto newcomers = registry_.newcomers();
    if (!newcomers.ok()) return newcomers.status();
    append(willing_, registry_.ask(newcomers.value(), Clock::now() + kAnswerWithin));
    if (willing_.size() >= awaited || Clock::now() >= deadline || stopped()) return {};
    std::this_thread::sleep_for(kLookAgain);
  }
}

void AggregatorDiscovery::look() {
  auto newcomers = registry_.newcomers();
  if (newcomers.ok()) append(waiting_, std::move(newcomers).value());  // a failed store counts as no newcomers
}

bool AggregatorDiscovery::wants_larger_group(size_t in_group) {
  look();
  if (waiting_.empty()) return false;
  expected_ = in_group + waiting_.size();
  expected_until_ = Clock::now() + kComeBack;
  return true;
}

std::vector<std::string> AggregatorDiscovery::discover() {
  look();
  if (patience_ > 0) {
    --patience_;
    return {};
  }
  if (waiting_.size() < expected_ && Clock::now() < expected_until_) return {};
  expected_ = 0;
  append(willing_, registry_.ask(std::exchange(waiting_, {}), Clock::now() + kAnswerWithin));
  return std::exchange(willing_, {});
}

void AggregatorDiscovery::lost_group(size_t operations) {
  if (operations >= kGoodGroup) next_patience_ = 1;
  patience_ = next_patience_ - 1;
  next_patience_ = std::min(2 * next_patience_, kMostPatience);
}

}  // namespace braid
