// SPDX-License-Identifier: Apache-2.0
// A key-value store that all ranks reach, such as the c10d Store. Ranks find each other through it.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace braid {

class Store {
 public:
  virtual ~Store() = default;
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key exists. kTimeout, naming the key, if it does not exist within `timeout`.
  virtual Result<std::string> get(const std::string& key, milliseconds timeout) = 0;
};

}  // namespace braid
