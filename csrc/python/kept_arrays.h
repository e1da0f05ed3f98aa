// SPDX-License-Identifier: Apache-2.0
// Arrays of Python whose memory the core uses for as long as it likes. The core drops them on any of its threads. Those
// must not wait for the GIL, so Python's part of it happens at the next call of Python.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

namespace braid {

// The owner of these arrays. REQUIRES: the GIL.
std::shared_ptr<const void> keep_arrays(std::vector<pybind11::object> arrays);

// Lets go of arrays that the core has dropped. REQUIRES: the GIL.
void let_dropped_arrays_go();

}  // namespace braid
