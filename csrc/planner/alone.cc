// SPDX-License-Identifier: Apache-2.0
#include "planner/alone.h"

namespace braid {

Schedule plan_alone(const Collective& collective, const std::string& algorithm, int aggregators) {
  Builder builder(collective, algorithm, 1, aggregators);
  builder.copy(0, output(0), input(0));
  return std::move(builder).build();
}

}  // namespace braid
