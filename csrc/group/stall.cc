// SPDX-License-Identifier: Apache-2.0
#include "group/stall.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace braid {
namespace {

// A group logs at most kMostTogether notices in this time.
constexpr int kMostTogether = 4;
constexpr milliseconds kCountedTogether{1000};

}  // namespace

void Stalls::show(const std::shared_ptr<Work>& work, Clock::time_point since, std::vector<Node> awaited) {
  work->set_awaited(awaited);
  const std::lock_guard lock(mutex_);
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) { return each.work == work; });
  if (row == rows_.end()) {
    rows_.push_back({work, since, std::move(awaited)});
  } else {
    row->awaited = std::move(awaited);
  }
}

bool Stalls::count_notice(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - counted_since_ > kCountedTogether) {
    counted_since_ = now;
    counted_ = 0;
  }
  if (++counted_ > kMostTogether) return false;
  ++notices_;
  return true;
}

void Stalls::end(const Work* work, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto row =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) { return each.work.get() == work; });
  if (row == rows_.end()) return;
  longest_ = std::max(longest_, now - row->since);
  rows_.erase(row);
}

Waits Stalls::waits() const {
  const auto now = Clock::now();
  Waits waits;
  const std::lock_guard lock(mutex_);
  Clock::duration longest = longest_;
  for (const Row& row : rows_) {
    longest = std::max(longest, now - row.since);
    waits.now.push_back({row.work->what(), std::chrono::duration<double>(now - row.since).count(), row.awaited});
  }
  std::stable_sort(waits.now.begin(), waits.now.end(),
                   [](const Wait& a, const Wait& b) { return a.seconds > b.seconds; });
  waits.notices = notices_;
  waits.longest_s = std::chrono::duration<double>(longest).count();
  return waits;
}

std::vector<Culprit> Stalls::culprits_of(const WaitView& view) const {
  const std::vector<int64_t> streams = mailbox_.peer_streams();
  std::vector<Culprit> culprits;
  for (Node node = 0; node < static_cast<Node>(streams.size()); ++node) {
    if (node == member_.rank) continue;
    const int64_t stream = streams[static_cast<size_t>(node)];
    const bool awaited = std::find(view.awaited.begin(), view.awaited.end(), node) != view.awaited.end();
    const bool is_late = stream >= 0 && stream < static_cast<int64_t>(view.sequence);
    if (awaited || is_late) culprits.push_back({node, peers_.place_of(node), stream, view.missing(node)});
  }
  return culprits;
}

std::string Stalls::reason_of(const WaitView& view) const {
  if (view.sequence > 0) {
    const std::vector<Culprit> culprits = culprits_of(view);
    return culprits.empty() ? view.missing(kAnyNode) : culprits_text(culprits, view.sequence);
  }
  if (view.awaited.empty()) return view.missing(kAnyNode);
  const Node peer = view.awaited.front();
  const std::string place = peers_.place_of(peer);
  return "rank " + std::to_string(peer) + (place.empty() ? "" : " on " + place) + ": " + view.missing(peer);
}

std::string Stalls::notice(const WaitView& view, Clock::duration waited) const {
  return "rank " + std::to_string(member_.rank) + " has waited " + seconds_text(waited) + " in " +
         view.work->what() + " of group \"" + member_.name + "\": " + reason_of(view);
}

std::string Stalls::end_notice(const Work& work, bool ok, Clock::duration waited) const {
  return "rank " + std::to_string(member_.rank) + ": " + work.what() + " of group \"" + member_.name + "\"" +
         (ok ? " has ended after " : " has failed after ") + seconds_text(waited);
}

void Stall::look(Stalls& stalls, Clock::time_point now, const WaitView& view) {
  for (auto step = watch_.step(now); step != StallWatch::Step::kNone; step = watch_.step(now)) {
    if (step == StallWatch::Step::kAsk && view.sequence > 0) stalls.ask(view.awaited);
    if (step == StallWatch::Step::kShow) stalls.show(view.work, watch_.begun(), view.awaited);
    if (step != StallWatch::Step::kTell) continue;
    if (!stalls.count_notice(now)) continue;
    has_told_ = true;
    log(LogLevel::kWarning, stalls.notice(view, now - watch_.begun()));
  }
}

void Stall::end_shown(Stalls& stalls, const std::shared_ptr<Work>& work, bool ok) {
  const auto now = Clock::now();
  stalls.end(work.get(), now);
  if (has_told_) log(LogLevel::kWarning, stalls.end_notice(*work, ok, now - watch_.begun()));
}

}  // namespace braid
