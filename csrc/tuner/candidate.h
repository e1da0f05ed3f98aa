// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace braid {

// An algorithm and the time that the cost model predicts for it.
struct Candidate {
  std::string algorithm;
  double predicted_s = 0;
};

}  // namespace braid
