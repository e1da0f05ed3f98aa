// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace braid {

// The TCP ports, both ends included, at which a process may listen. {0, 0}: any port, the system picks one.
struct PortRange {
  int first = 0;
  int last = 0;
  bool any() const { return first == 0; }
};

// "30000-30100", or "30000" for one port. kInvalidArgument if the text is anything else.
Result<PortRange> port_range_from_text(const std::string& text);

// The text that port_range_from_text() reads.
std::string to_text(const PortRange& ports);

}  // namespace braid
