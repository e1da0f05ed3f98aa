// SPDX-License-Identifier: Apache-2.0
// What ranks make of a refusal.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/status.h"
#include "communicator/communicator.h"
#include "injection/faults.h"

namespace braid::testing {

// What a user's program sees: an exception is an error like a Status.
template <class Body>
Status as_seen_by_user(Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    try {
      return {Code::kSystem, error.what()};
    } catch (const std::bad_alloc&) {
      return Status::out_of_memory();
    }
  }
}

// What a program does with an error, short of ending; which would tell the others, memory or not.
inline void give_up(Communicator& group) {
  while (group.failure().ok()) {
    static_cast<void>(as_seen_by_user([&] { return group.abort("its user saw an error"), Status(); }));
  }
}

inline bool names_cause(Fault fault, const std::string& text) {
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  switch (fault) {
    case Fault::kMemory: return says("out of memory") || says("bad_alloc") || says("Cannot allocate");
    case Fault::kDescriptor: return says("Too many open files") || says("Cannot allocate memory");
    case Fault::kThread: return says("Resource temporarily unavailable");
  }
  return false;
}

}  // namespace braid::testing
