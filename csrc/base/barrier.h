// SPDX-License-Identifier: Apache-2.0
// Where exceptions end. At the bottom of a thread of ours, and wherever others would be left waiting, what is thrown
// becomes a Status, which then fails the group it belongs to.
#pragma once

#include <cxxabi.h>

#include <utility>

#include "base/status.h"

namespace braid {

// Of the exception that is being handled: "out of memory while <doing>". Never throws. REQUIRES: inside a catch.
Status status_of_exception(const char* doing) noexcept;

// Runs body(); what it throws, or ok.
template <class Body>
Status caught(const char* doing, Body&& body) {
  try {
    std::forward<Body>(body)();
    return {};
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended from outside, by Python for one; to keep that in ends the process
  } catch (...) {
    return status_of_exception(doing);
  }
}

}  // namespace braid
