// SPDX-License-Identifier: Apache-2.0
// The algorithms that the user forces.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

class Forced {
 public:
  // "ring" forces ring for every collective that has this algorithm. "all_reduce=ring,broadcast=binomial" forces one
  // algorithm for each named collective; a later entry replaces an earlier one. "" forces nothing. kInvalidArgument
  // for an unknown name; the message lists the known names.
  static Result<Forced> parse(std::string_view text);

  // Empty if no algorithm is forced for this collective.
  const std::string& algorithm_for(CollectiveKind kind) const { return algorithms_[static_cast<size_t>(kind)]; }

 private:
  std::array<std::string, kCollectiveKindCount> algorithms_;
};

}  // namespace braid
