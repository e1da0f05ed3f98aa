// SPDX-License-Identifier: Apache-2.0
// The families that the user forces.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

class Forced {
 public:
  // "ring" forces ring for every collective that has this family. "all_reduce=ring,broadcast=binomial" forces a
  // family for each named collective; a later entry replaces an earlier one. "" forces nothing. kInvalidArgument
  // for an unknown name; the message lists the known names.
  static Result<Forced> parse(std::string_view text);

  // Empty if no family is forced for this collective.
  const std::string& family_for(CollectiveKind kind) const { return families_[static_cast<size_t>(kind)]; }

 private:
  std::array<std::string, kCollectiveKindCount> families_;
};

}  // namespace braid
