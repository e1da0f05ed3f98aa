// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace braid {

using Bytes = std::span<std::byte>;             // memory that may be written
using ConstBytes = std::span<const std::byte>;  // memory that is only read

}  // namespace braid
