// SPDX-License-Identifier: Apache-2.0
// Turns exceptions into a Status, which then fails the group that it belongs to. Used at the bottom of braid's
// threads, and in all places where an exception would leave others waiting.
#pragma once

#include <cxxabi.h>

#include <utility>

#include "base/status.h"

namespace braid {

// The Status of the exception that is being handled: "out of memory while <doing>". Never throws. REQUIRES: called
// inside a catch block.
Status status_of_exception(const char* doing) noexcept;

// Runs body(). Returns ok, or the Status of the exception that body() threw.
template <class Body>
Status caught(const char* doing, Body&& body) {
  try {
    std::forward<Body>(body)();
    return {};
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended from outside, for example by Python; to swallow this would end the process
  } catch (...) {
    return status_of_exception(doing);
  }
}

}  // namespace braid
