// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "base/clock.h"

namespace braid {

class Greeting;

// The strangers that a listener holds at a time, and whom it sends away for the next one.
//
// A member has said who it is when it is accepted, or a moment later. So those who have said nothing yet go first,
// the oldest of them; addresses do not matter, as a stranger may sit where a member does. Who was heard goes when it
// has had its time. Sending away costs time, and who was sent away comes again; so it is done at a modest pace, except
// while a group forms, which must not wait behind a crowd. Guarded by the listener's mutex.
class GuestList {
 public:
  using Guest = std::shared_ptr<Greeting>;
  using Place = std::list<Guest>::iterator;

  static constexpr size_t kMost = 1024;
  static constexpr milliseconds kPatience{1000};  // with those who were heard, when others wait
  static constexpr milliseconds kHurry{10'000};   // after a group was joined
  static constexpr milliseconds kPace{1};         // turns away one in so much time, on average
  static constexpr milliseconds kAdvance{256};    // and may be so far ahead of that

  // At most `most` guests, and a quarter of the descriptors that this process may have.
  explicit GuestList(size_t most = kMost);

  Place enter(Guest guest);
  // It has said who it is; the place stays good.
  void hear(Place place);
  void leave(Place place, bool was_heard);
  void turned_away(Deadline now);
  void hurry(Deadline now) { hurry_until_ = now + kHurry; }

  bool full() const { return unheard_.size() + heard_.size() >= most_; }
  bool calm() const { return unheard_.size() < most_ / 4; }
  // Null where there is nobody.
  Guest oldest_unheard() const { return unheard_.empty() ? nullptr : unheard_.front(); }
  Guest oldest_heard() const { return heard_.empty() ? nullptr : heard_.front(); }
  // Before this time nobody else is accepted, and so nobody turned away.
  Deadline rests_until(Deadline now) const;
  std::list<Guest> take_all();

 private:
  const size_t most_;
  std::list<Guest> unheard_, heard_;  // oldest first
  Deadline hurry_until_{};
  Deadline worked_off_{};  // when those who were turned away so far would have been, at the modest pace
};

}  // namespace braid
