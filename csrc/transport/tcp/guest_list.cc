// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/guest_list.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace braid {
namespace {

// The shortest rest. After it many connections are accepted at once.
constexpr milliseconds kShortestRest{16};

size_t quarter_of_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return GuestList::kMost;
  return std::max<size_t>(limit.rlim_cur / 4, 8);
}

}  // namespace

GuestList::GuestList(size_t most) : most_(std::min(most, quarter_of_descriptors())) {}

GuestList::Place GuestList::enter(Guest guest) { return unheard_.insert(unheard_.end(), std::move(guest)); }

void GuestList::hear(Place place) { heard_.splice(heard_.end(), unheard_, place); }

void GuestList::leave(Place place, bool was_heard) { (was_heard ? heard_ : unheard_).erase(place); }

void GuestList::turned_away(Deadline now) {
  if (now >= hurry_until_) worked_off_ = std::max(worked_off_, now) + kPace;
}

Deadline GuestList::rests_until(Deadline now) const {
  if (now < hurry_until_ || worked_off_ <= now + kAdvance) return now;
  return std::max(worked_off_ - kAdvance, now + kShortestRest);
}

std::list<GuestList::Guest> GuestList::take_all() {
  std::list<Guest> all = std::exchange(unheard_, {});
  all.splice(all.end(), heard_);
  return all;
}

}  // namespace braid
