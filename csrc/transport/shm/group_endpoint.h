// SPDX-License-Identifier: Apache-2.0
// The endpoint of a rank's side of a group in shared memory: the text by which peers reach it.
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"
#include "base/status.h"
#include "schedule/collective.h"

namespace braid::shm {

struct GroupEndpoint {
  Node rank = 0;
  int ranks = 0;
  size_t ring_bytes = 0;
  size_t eager_bytes = 0;
  uint64_t probe_address = 0;  // the address of `probe` in the private memory of the process
  Nonce probe;
  std::string inbox;  // handles of segments
  std::string board;
  std::string bell;

  std::string text() const;
  // kInvalidArgument for all text that text() cannot have written.
  static Result<GroupEndpoint> parse(const std::string& text);
};

}  // namespace braid::shm
