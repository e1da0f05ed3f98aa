// SPDX-License-Identifier: Apache-2.0
// The part of the proof that checks one step at a time: every ref exists, every peer is another node, every
// operand list has the right shape. All later parts may use the numbers in the schedule as indices.
#pragma once

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

Status check_structure(const Schedule& schedule);

}  // namespace braid
