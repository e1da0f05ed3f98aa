// SPDX-License-Identifier: Apache-2.0
// The text form of a schedule: what golden files hold and what errors quote. It round-trips.
//
//   all_reduce ring ranks=3 chunks=3
//   r0
//     0: send i0 -> r1; reduce o2 = i2 + r2
//     1: send o2 -> r1; reduce o1 = i1 + r2
//     ...
//
// After ranks= come aggregators=, where there are any, and root= in collectives with one; unequal shares end the
// first line: shares=3,1,1. The other two steps read "recv o1 <- r2" and "copy o0 = i0". An aggregator is
// written as a rank after the last one. Rounds are numbered per node. Blanks and empty lines are free.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

std::string to_text(const Schedule& schedule);
std::string to_text(const Step& step);  // "reduce o2 = i2 + r2"
std::string to_text(const Ref& ref);    // "o2", "o4-7"
// "all_reduce/ring r2 round 1 step 0 (recv o1 <- r0)": how errors name a step.
std::string to_text(const Schedule& schedule, Node node, size_t round, size_t step);
// What it accepts is well-formed text, not yet a right schedule: that is for verify() to say.
// kInvalidArgument with the line number and what was expected there.
Result<Schedule> schedule_from_text(std::string_view text);

}  // namespace braid
