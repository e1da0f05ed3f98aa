// SPDX-License-Identifier: Apache-2.0
// The text form of a schedule: what `braid plan` prints, what golden files hold, what errors quote. It
// round-trips.
//
//   all_reduce ring ranks=3 chunks=3
//   r0
//     0: send i0 -> r1; reduce o2 = i2 + r2
//     1: send o2 -> r1; reduce o1 = i1 + r2
//     ...
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

std::string to_text(const Schedule& schedule);
std::string to_text(const Step& step);  // "reduce o2 = i2 + r2"
std::string to_text(const Ref& ref);    // "o2", "o4-7"
// kInvalidArgument with the line number and what was expected there.
Result<Schedule> schedule_from_text(std::string_view text);

}  // namespace braid
