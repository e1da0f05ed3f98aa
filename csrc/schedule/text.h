// SPDX-License-Identifier: Apache-2.0
// The text form of a schedule. Golden files hold it and errors quote it. It round-trips.
//
//   all_reduce ring ranks=3 chunks=3
//   r0
//     0: send i0 -> r1; reduce o2 = i2 + r2
//     1: send o2 -> r1; reduce o1 = i1 + r2
//     ...
//
// After ranks= come aggregators=, if there are any, and root=, if the collective has a root. Unequal shares end
// the first line: shares=3,1,1. The other two steps read "recv o1 <- r2" and "copy o0 = i0". An aggregator is
// written as a rank after the last one. Rounds are numbered per node. Blanks and empty lines are ignored.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

std::string to_text(const Schedule& schedule);
std::string to_text(const Step& step);  // "reduce o2 = i2 + r2"
std::string to_text(const Ref& ref);    // "o2", "o4-7"
// The step as errors name it: "all_reduce/ring r2 round 1 step 0 (recv o1 <- r0)".
std::string to_text(const Schedule& schedule, Node node, size_t round, size_t step);
// Accepts well-formed text, which need not be a right schedule: call verify() for that.
// kInvalidArgument with the line number and the text that was expected there.
Result<Schedule> schedule_from_text(std::string_view text);

}  // namespace braid
