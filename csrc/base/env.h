// SPDX-License-Identifier: Apache-2.0
// The only place of the core that reads the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

// Nothing when unset or empty.
std::optional<std::string> env_string(const char* name);
// The fallback when unset; kInvalidArgument, naming the variable, when it is no whole number in [low, high].
Result<int64_t> env_integer(const char* name, int64_t fallback, int64_t low, int64_t high);
// The same of a number of seconds, which may have a fraction. 0 stands for never, and is always allowed.
Result<milliseconds> env_seconds(const char* name, milliseconds fallback, milliseconds low, milliseconds high);

}  // namespace braid
