// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <atomic>

namespace braid {
namespace {

void default_sink(LogLevel level, const char* line) {
  if (level != LogLevel::kWarning) return;
  const std::string text = std::string("braid: ") + line + "\n";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::atomic<LogSink> current_sink{default_sink};

}  // namespace

void set_log_sink(LogSink sink) { current_sink = sink ? sink : default_sink; }

void log(LogLevel level, const std::string& line) noexcept {
  try {
    current_sink.load()(level, line.c_str());
  } catch (...) {  // for example, there is no memory for the line
  }
}

}  // namespace braid
