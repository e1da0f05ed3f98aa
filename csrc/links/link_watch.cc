// SPDX-License-Identifier: Apache-2.0
#include "links/link_watch.h"

#include <algorithm>

#include "links/fast_nic.h"

namespace braid {
namespace {

constexpr double kDrift = 0.2;
constexpr int kMostLooks = 64;

}  // namespace

bool LinkWatch::look(Watched& nic, double seen, double measured, double fastest) const {
  const auto is_faster = [](double rate, double than) { return than < kFastNic && rate > than * (1 + kDrift); };
  const bool is_too_fast = is_faster(fastest, measured);
  if (seen <= 0 && !is_too_fast) return false;
  if (nic.usual <= 0) nic.usual = seen;
  const double usual = std::min(nic.usual, kFastNic);
  const bool is_off = usual > 0 && seen > 0 && (seen < usual * (1 - kDrift) || is_faster(seen, usual));
  nic.looks_off = is_too_fast || is_off ? nic.looks_off + 1 : 0;
  return nic.looks_off >= looks_needed_;
}

bool LinkWatch::has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured,
                            const std::vector<SeenRates>& fastest) {
  nics_.resize(2 * hosts.size());
  ++looks_;
  bool drifted = false;
  for (size_t i = 0; i < nics_.size(); ++i) {
    const auto direction = i % 2 == 0 ? &SeenRates::up : &SeenRates::down;
    drifted |= look(nics_[i], hosts[i / 2].*direction, measured[i / 2].*direction, fastest[i / 2].*direction);
  }
  return drifted;
}

void LinkWatch::measured_again(bool had_changed) {
  forget();
  looks_needed_ = had_changed && looks_ >= kLongTime + looks_needed_ ? 2 : std::min(2 * looks_needed_, kMostLooks);
  looks_ = 0;
}

}  // namespace braid
