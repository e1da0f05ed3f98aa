// SPDX-License-Identifier: Apache-2.0
#include "communicator/link_watch.h"

#include <algorithm>

#include "communicator/fast_card.h"

namespace braid {
namespace {

constexpr double kDrift = 0.2;
constexpr int kMostLooks = 64;

}  // namespace

bool LinkWatch::look(Watched& card, double seen, double measured) const {
  if (seen <= 0) return false;
  if (card.usual <= 0) card.usual = seen;
  const double usual = std::min(card.usual, kFastCard), least = std::min(usual, measured);
  const bool off = seen < usual * (1 - kDrift) || (least < kFastCard && seen > least * (1 + kDrift));
  card.looks_off = off ? card.looks_off + 1 : 0;
  return card.looks_off >= looks_needed_;
}

bool LinkWatch::has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured) {
  cards_.resize(2 * hosts.size());
  ++looks_;
  bool drifted = false;
  for (size_t i = 0; i < cards_.size(); ++i) {
    const SeenRates& host = hosts[i / 2];
    const SeenRates& can = measured[i / 2];
    drifted |= i % 2 == 0 ? look(cards_[i], host.up, can.up) : look(cards_[i], host.down, can.down);
  }
  return drifted;
}

void LinkWatch::measured_again(bool had_changed) {
  forget();
  looks_needed_ = had_changed && looks_ >= kLongTime + looks_needed_ ? 2 : std::min(2 * looks_needed_, kMostLooks);
  looks_ = 0;
}

}  // namespace braid
