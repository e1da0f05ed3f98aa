// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedule/builder.h"

namespace braid {

// Draws any collective of one rank: the output is a copy of the input. Aggregators have nothing to do.
Schedule plan_alone(const Collective& collective, const std::string& algorithm, int aggregators = 0);

}  // namespace braid
