// SPDX-License-Identifier: Apache-2.0
// Which elements top-k sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

// Writes the positions of the positions.size() elements of the largest magnitude, ascending. Of equal ones the first
// are taken; a NaN is larger than all numbers. REQUIRES: positions.size() <= elements <= 2^31.
void select_largest(const float* values, size_t elements, std::span<uint32_t> positions);

}  // namespace braid
