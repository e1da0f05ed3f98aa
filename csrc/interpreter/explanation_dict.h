// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "communicator/explanation.h"

namespace braid {

// As a Python dict. A template, because the two Python modules have each their own pybind11.
template <class Dict>
Dict dict_of(const Explanation& explanation) {
  std::vector<Dict> runners_up;
  for (const Candidate& candidate : explanation.runners_up) {
    Dict row;
    row["algorithm"] = candidate.algorithm;
    row["predicted_s"] = candidate.predicted_s;
    runners_up.push_back(std::move(row));
  }
  Dict dict;
  dict["collective"] = explanation.collective;
  dict["algorithm"] = explanation.algorithm;
  dict["predicted_s"] = explanation.predicted_s;
  dict["runners_up"] = std::move(runners_up);
  dict["reason"] = explanation.reason;
  dict["shares"] = explanation.shares;
  dict["chunk_bytes"] = explanation.chunk_bytes;
  dict["segments"] = explanation.segments;
  dict["copies_s"] = explanation.copies_s;
  return dict;
}

}  // namespace braid
