// SPDX-License-Identifier: Apache-2.0
#include "base/port_range.h"

#include <charconv>
#include <string_view>

namespace braid {
namespace {

constexpr int kLastPort = 65535;

// 0 if the text is no port.
int port_of(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && port >= 1 && port <= kLastPort ? port : 0;
}

}  // namespace

Result<PortRange> port_range_from_text(const std::string& text) {
  const size_t dash = text.find('-');
  PortRange ports;
  ports.first = port_of(std::string_view(text).substr(0, dash));
  ports.last = dash == std::string::npos ? ports.first : port_of(std::string_view(text).substr(dash + 1));
  if (ports.first > 0 && ports.first <= ports.last) return ports;
  return Status(Code::kInvalidArgument,
                text + ": expected two ports from 1 to 65535, the smaller first, as in 30000-30100");
}

std::string to_text(const PortRange& ports) {
  return std::to_string(ports.first) + "-" + std::to_string(ports.last);
}

}  // namespace braid
