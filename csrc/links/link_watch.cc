// SPDX-License-Identifier: Apache-2.0
#include "links/link_watch.h"

#include <algorithm>

#include "links/fast_card.h"

namespace braid {
namespace {

constexpr double kDrift = 0.2;
constexpr int kMostLooks = 64;

}  // namespace

bool LinkWatch::look(Watched& card, double seen, double measured, double fastest) const {
  const auto is_faster = [](double rate, double than) { return than < kFastCard && rate > than * (1 + kDrift); };
  const bool is_too_fast = is_faster(fastest, measured);
  if (seen <= 0 && !is_too_fast) return false;
  if (card.usual <= 0) card.usual = seen;
  const double usual = std::min(card.usual, kFastCard);
  const bool is_off = usual > 0 && seen > 0 && (seen < usual * (1 - kDrift) || is_faster(seen, usual));
  card.looks_off = is_too_fast || is_off ? card.looks_off + 1 : 0;
  return card.looks_off >= looks_needed_;
}

bool LinkWatch::has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured,
                            const std::vector<SeenRates>& fastest) {
  cards_.resize(2 * hosts.size());
  ++looks_;
  bool drifted = false;
  for (size_t i = 0; i < cards_.size(); ++i) {
    const auto direction = i % 2 == 0 ? &SeenRates::up : &SeenRates::down;
    drifted |= look(cards_[i], hosts[i / 2].*direction, measured[i / 2].*direction, fastest[i / 2].*direction);
  }
  return drifted;
}

void LinkWatch::measured_again(bool had_changed) {
  forget();
  looks_needed_ = had_changed && looks_ >= kLongTime + looks_needed_ ? 2 : std::min(2 * looks_needed_, kMostLooks);
  looks_ = 0;
}

}  // namespace braid
