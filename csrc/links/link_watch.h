// SPDX-License-Identifier: Apache-2.0
// Watches the rates that NICs reach while they work, from replan to replan. Tells when they have changed so much
// that the links should be measured again.
#pragma once

#include <cstddef>
#include <vector>

namespace braid {

// Bytes per second that a NIC passed while it was busy; 0 if too little was seen to tell.
struct SeenRates {
  double up = 0;
  double down = 0;
};

// Working rates depend on the plan as well as on the NIC. So a rate is compared with the rate right after the
// links were last measured. It is compared with the measured rate in one way only: no NIC works faster than it
// can. One look that is off may have any reason; two in a row are a change. All fast NICs count as equally fast.
class LinkWatch {
 public:
  // One entry per host. `hosts`: what its ranks passed together. `measured`: what was measured last. `fastest`:
  // what the fastest of its ranks passed. Returns true if one of two things holds for enough looks in a row: a NIC
  // is more than 20 % off its usual rate, or a rank is more than 20 % faster than the measured NIC.
  bool has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured,
                   const std::vector<SeenRates>& fastest);
  // The same for hosts with one rank each.
  bool has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured) {
    return has_drifted(hosts, measured, hosts);
  }
  // Forgets the usual rates: the work has changed.
  void forget() { nics_.clear(); }
  // The links were measured again. Twice as many looks are needed from now on if the links had not changed, or if
  // they were measured not long ago: measuring costs more than such a change.
  void measured_again(bool had_changed);

 private:
  static constexpr int kLongTime = 50;  // looks

  struct Watched {
    double usual = 0;  // 0: nothing yet
    int looks_off = 0;
  };
  // True if the NIC was off in enough looks in a row.
  bool look(Watched& nic, double seen, double measured, double fastest) const;

  std::vector<Watched> nics_;  // per host: up, down
  int looks_needed_ = 2;
  int looks_ = kLongTime + 2;  // since the links were measured again
};

}  // namespace braid
