// SPDX-License-Identifier: Apache-2.0
#include "transport/waiting.h"

#include <algorithm>

namespace braid {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kDear = milliseconds(1);
constexpr int kWeight = 4;                             // of the mean against the newest yield
constexpr nanoseconds kForgotten = milliseconds(200);  // yields that are dear after that begin anew
constexpr nanoseconds kFirstDear = milliseconds(16);
constexpr nanoseconds kLongestDear = milliseconds(1024);
constexpr nanoseconds kSpinAwake = milliseconds(100);

std::atomic<int64_t> awake_limit_ns{0};
std::atomic<bool> is_crowded{false};
std::atomic<WaitMode> wait_mode{WaitMode::kAuto};

int64_t count(Clock::time_point time) { return nanoseconds(time.time_since_epoch()).count(); }

}  // namespace

void set_waiting(int64_t awake_ns, bool crowded) {
  awake_limit_ns = awake_ns;
  is_crowded = crowded;
}

void set_wait_mode(WaitMode mode) { wait_mode = mode; }

WaitRules wait_rules() {
  const WaitMode mode = wait_mode.load(std::memory_order_relaxed);
  const nanoseconds awake(awake_limit_ns.load(std::memory_order_relaxed));
  return {mode, mode == WaitMode::kSpin ? kSpinAwake : awake, is_crowded.load(std::memory_order_relaxed)};
}

WaitCounts& wait_counts() {
  static WaitCounts counts;
  return counts;
}

YieldPrice& yield_price() {
  static YieldPrice price;
  return price;
}

bool YieldPrice::is_dear(Clock::time_point now) const {
  return count(now) < dear_until_.load(std::memory_order_relaxed);
}

void YieldPrice::paid(Clock::time_point begun, Clock::time_point ended) {
  const int64_t mean = mean_.load(std::memory_order_relaxed);
  const int64_t newer = mean + (nanoseconds(ended - begun).count() - mean) / kWeight;
  if (newer < kDear.count()) return mean_.store(newer, std::memory_order_relaxed);
  const int64_t now = count(ended);
  const bool again = now - dear_until_.load(std::memory_order_relaxed) < kForgotten.count();
  const int64_t period =
      again ? std::min(2 * period_.load(std::memory_order_relaxed), kLongestDear.count()) : kFirstDear.count();
  period_.store(period, std::memory_order_relaxed);
  dear_until_.store(now + period, std::memory_order_relaxed);
  mean_.store(kDear.count() / 2, std::memory_order_relaxed);  // the next ones count more
}

}  // namespace braid
