// SPDX-License-Identifier: Apache-2.0
// What NICs were seen to pass while they worked, replan by replan: has it changed so much that the links
// should be measured again?
#pragma once

#include <cstddef>
#include <vector>

namespace braid {

// What a NIC passed while it was busy, in bytes per second; 0 where not enough was seen to tell.
struct SeenRates {
  double up = 0;
  double down = 0;
};

// Working rates depend on the plan as well as on the NIC, so each is compared with what it was right after the links
// were last measured. With what was measured then only one thing is compared: no NIC works faster than it can. One
// look that is off may be anything; two in a row are not. Fast NICs are all alike: theirs is not what changes.
class LinkWatch {
 public:
  // One entry per host: what its ranks have passed together, `measured` when the links last were, and what the
  // `fastest` of its ranks has passed. True when a NIC has been more than 20 % off, or a rank as much faster than the
  // NIC was measured to be, in as many looks in a row as it takes.
  bool has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured,
                   const std::vector<SeenRates>& fastest);
  // The same where hosts have one rank each.
  bool has_drifted(const std::vector<SeenRates>& hosts, const std::vector<SeenRates>& measured) {
    return has_drifted(hosts, measured, hosts);
  }
  // The work has changed: what was seen so far is no measure any more.
  void forget() { nics_.clear(); }
  // The links were measured again. Where they had not changed after all, or it is not long ago that they were measured
  // the last time, it takes twice as many looks from now on: whatever it is that comes and goes, measuring costs more.
  void measured_again(bool had_changed);

 private:
  static constexpr int kLongTime = 50;  // looks

  struct Watched {
    double usual = 0;  // 0: nothing yet
    int looks_off = 0;
  };
  // Whether it has been off often enough.
  bool look(Watched& nic, double seen, double measured, double fastest) const;

  std::vector<Watched> nics_;  // per host: up, down
  int looks_needed_ = 2;
  int looks_ = kLongTime + 2;  // since the links were measured again
};

}  // namespace braid
