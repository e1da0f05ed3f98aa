// SPDX-License-Identifier: Apache-2.0
// The only place of the core that reads the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

// Returns nothing if the variable is unset or empty.
std::optional<std::string> env_string(const char* name);
// Returns the fallback if the variable is unset. kInvalidArgument, naming the variable, if its value is not a
// whole number in [low, high].
Result<int64_t> env_integer(const char* name, int64_t fallback, int64_t low, int64_t high);
// The same for a number of seconds, which may have a fraction. 0 means never, and is always allowed.
Result<milliseconds> env_seconds(const char* name, milliseconds fallback, milliseconds low, milliseconds high);

}  // namespace braid
