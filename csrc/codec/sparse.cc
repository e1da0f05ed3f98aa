// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "codec/formulas.h"

namespace braid {

void select_largest(const float* values, size_t elements, std::span<uint32_t> positions) {
  if (positions.empty()) return;
  std::vector<uint32_t> order(elements);
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [values](uint32_t a, uint32_t b) {
    const uint32_t left = formula::magnitude_bits(values[a]), right = formula::magnitude_bits(values[b]);
    return left != right ? left > right : a < b;
  };
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(positions.size()) - 1, order.end(),
                   before);
  std::copy_n(order.begin(), positions.size(), positions.begin());
  std::sort(positions.begin(), positions.end());
}

}  // namespace braid
