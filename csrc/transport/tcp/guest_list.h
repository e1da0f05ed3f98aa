// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "base/clock.h"

namespace braid {

class Greeting;

// The strangers that a listener holds, its guests. Decides which guest is turned away to make room for the next
// one.
//
// A member sends its opening before it is accepted, or a moment later. So the oldest guest that has sent nothing
// goes first. Addresses do not matter, because a stranger may have a member's address. A guest that was heard goes
// when its time is over. Turning away costs time, and the guest comes again. So it is done at a modest pace,
// except while a group forms, which must not wait behind a crowd. Guarded by the listener's mutex.
class GuestList {
 public:
  using Guest = std::shared_ptr<Greeting>;
  using Place = std::list<Guest>::iterator;

  static constexpr size_t kMost = 1024;
  static constexpr milliseconds kHeardGuestStays{1000};  // if others wait
  static constexpr milliseconds kHurry{10'000};          // after a group was joined, no pace is kept for so long
  static constexpr milliseconds kPace{1};                // the average time per guest that is turned away
  static constexpr milliseconds kAdvance{256};           // may be ahead of this average by so much

  // At most `most` guests, and at most a quarter of the descriptors that this process may have.
  explicit GuestList(size_t most = kMost);

  Place enter(Guest guest);
  // The guest has sent its opening. `place` stays valid.
  void hear(Place place);
  void leave(Place place, bool was_heard);
  void turned_away(Deadline now);
  void hurry(Deadline now) { hurry_until_ = now + kHurry; }

  bool full() const { return unheard_.size() + heard_.size() >= most_; }
  bool calm() const { return unheard_.size() < most_ / 4; }
  // Null if there is none.
  Guest oldest_unheard() const { return unheard_.empty() ? nullptr : unheard_.front(); }
  Guest oldest_heard() const { return heard_.empty() ? nullptr : heard_.front(); }
  // Before this time no connection is accepted, so no guest is turned away.
  Deadline rests_until(Deadline now) const;
  std::list<Guest> take_all();

 private:
  const size_t most_;
  std::list<Guest> unheard_, heard_;  // oldest first
  Deadline hurry_until_{};
  Deadline worked_off_{};  // when all guests turned away so far would have been, at the modest pace
};

}  // namespace braid
