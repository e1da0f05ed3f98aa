// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/rate_meter.h"

#include <algorithm>

namespace braid {
namespace {

constexpr uint64_t kWindowBytes = 512 * 1024;
constexpr milliseconds kWindowTime{20};
constexpr size_t kFewestWindows = 3;
constexpr size_t kMostWindows = 128;
// At least one byte in so many must count. Messages that are too small to keep a NIC busy sometimes look as if
// they did.
constexpr uint64_t kLeastPart = 8;

}  // namespace

void RateMeter::interval(Clock::duration length, uint64_t bytes, bool busy) {
  passed_bytes_ += bytes;
  if (busy_before_last_ && last_.busy && busy) count(last_);
  busy_before_last_ = last_.busy;
  last_ = {length, bytes, busy};
}

void RateMeter::count(const Interval& interval) {
  counted_bytes_ += interval.bytes;
  window_.length += interval.length;
  window_.bytes += interval.bytes;
  if (window_.bytes < kWindowBytes || window_.length < kWindowTime) return;
  const double rate = static_cast<double>(window_.bytes) / std::chrono::duration<double>(window_.length).count();
  if (rates_.size() < kMostWindows) {
    rates_.push_back(rate);
  } else {
    rates_[windows_ % kMostWindows] = rate;
  }
  ++windows_;
  window_ = {};
}

double RateMeter::take() {
  double rate = 0;
  if (rates_.size() >= kFewestWindows && counted_bytes_ >= passed_bytes_ / kLeastPart) {
    const auto quartile = rates_.begin() + static_cast<std::ptrdiff_t>((rates_.size() - 1) * 3 / 4);
    std::nth_element(rates_.begin(), quartile, rates_.end());
    rate = *quartile;
  }
  rates_.clear();
  windows_ = 0;
  passed_bytes_ = counted_bytes_ = 0;
  window_ = {};
  return rate;
}

}  // namespace braid
