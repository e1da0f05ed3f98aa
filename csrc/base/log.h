// SPDX-License-Identifier: Apache-2.0
// The log sink. Nothing in csrc/ prints.
#pragma once

#include <string>

namespace braid {

enum class LogLevel { kInfo, kWarning };

// Called from any thread. The default sink writes warnings to standard error, one line each, and drops the rest.
using LogSink = void (*)(LogLevel level, const char* line);
void set_log_sink(LogSink sink);

// What the sink throws is dropped with the line.
void log(LogLevel level, const std::string& line) noexcept;

}  // namespace braid
