// SPDX-License-Identifier: Apache-2.0
// The families that the user insists on.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "schedule/collective.h"

namespace braid {

class Forced {
 public:
  // "ring" forces it for every collective that has such a family; "all_reduce=ring,broadcast=binomial" for the
  // named ones, later entries winning; "" forces nothing. kInvalidArgument, with the names there are, for others.
  static Result<Forced> parse(std::string_view text);

  // Empty where nothing is forced.
  const std::string& family_for(CollectiveKind kind) const { return families_[static_cast<size_t>(kind)]; }

 private:
  std::array<std::string, kCollectiveKindCount> families_;
};

}  // namespace braid
