// SPDX-License-Identifier: Apache-2.0
// The log sink. Nothing in csrc/ prints.
#pragma once

#include <string>

namespace braid {

enum class LogLevel { kInfo, kWarning };

// Called from any thread. The default sink writes warnings to standard error, one line each, and drops other
// levels.
using LogSink = void (*)(LogLevel level, const char* line);
void set_log_sink(LogSink sink);

// If the sink throws, the exception and the line are dropped.
void log(LogLevel level, const std::string& line) noexcept;

}  // namespace braid
