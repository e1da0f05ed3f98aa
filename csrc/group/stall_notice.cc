// SPDX-License-Identifier: Apache-2.0
#include "group/stall_notice.h"

#include <algorithm>
#include <cstdio>

namespace braid {
namespace {

constexpr milliseconds kShowEvery{1000};
constexpr size_t kMostNamed = 4;

std::string more_text(size_t named, size_t all) {
  return all > named ? " and " + std::to_string(all - named) + " more" : "";
}

std::string state_text(const Culprit& culprit, uint64_t sequence) {
  const auto own = static_cast<int64_t>(sequence);
  if (culprit.last_collective < 0) return "did not answer when asked";
  if (culprit.last_collective == 0 && own > 0) return "has not begun it, nor any before";
  const std::string last = "#" + std::to_string(culprit.last_collective);
  if (culprit.last_collective < own) return "has not begun it; its last operation was " + last;
  const std::string begun = culprit.last_collective == own ? "has begun it" : "is at " + last + " already";
  return culprit.missing.empty() ? begun : begun + ", and " + culprit.missing;
}

}  // namespace

std::string seconds_text(Clock::duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  char text[32];
  std::snprintf(text, sizeof text, seconds < 100 ? "%.3g s" : "%.0f s", seconds);
  return text;
}

StallWatch::StallWatch(Clock::time_point begun, milliseconds first)
    : begun_(begun), notice_after_(first), show_at_(begun + kShowEvery) {
  if (first.count() > 0) notice_at_ = begun + first;
}

Deadline StallWatch::due() const {
  if (notice_at_ == kNoDeadline) return show_at_;
  return std::min(show_at_, has_asked_ ? notice_at_ : notice_at_ - kAnswerTime);
}

StallWatch::Step StallWatch::step(Clock::time_point now) {
  if (notice_at_ != kNoDeadline && !has_asked_ && now >= notice_at_ - kAnswerTime) {
    has_asked_ = true;
    notice_at_ = std::max(notice_at_, now + kAnswerTime);
    return Step::kAsk;
  }
  if (has_asked_ && now >= notice_at_) {
    has_asked_ = false;
    ++notices_;
    while (begun_ + notice_after_ <= now + kAnswerTime) notice_after_ *= 2;
    notice_at_ = begun_ + notice_after_;
    return Step::kTell;
  }
  if (now >= show_at_) {
    show_at_ = now + kShowEvery;
    has_shown_ = true;
    return Step::kShow;
  }
  return Step::kNone;
}

std::string ranks_text(const std::vector<Node>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  const size_t named = std::min(ranks.size(), kMostNamed);
  for (size_t i = 0; i < named; ++i) text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  return text + more_text(named, ranks.size());
}

std::string culprits_text(std::vector<Culprit> culprits, uint64_t sequence) {
  const auto has_begun = [&](const Culprit& culprit) {
    return culprit.last_collective >= static_cast<int64_t>(sequence);
  };
  std::stable_partition(culprits.begin(), culprits.end(), [&](const Culprit& each) { return !has_begun(each); });
  std::string text;
  const size_t named = std::min(culprits.size(), kMostNamed);
  for (size_t i = 0; i < named; ++i) {
    const Culprit& culprit = culprits[i];
    text += (i == 0 ? "rank " : "; rank ") + std::to_string(culprit.rank);
    if (!culprit.place.empty()) text += " on " + culprit.place;
    text += " " + state_text(culprit, sequence);
  }
  return text + more_text(named, culprits.size());
}

}  // namespace braid
