// SPDX-License-Identifier: Apache-2.0
// Converts braid's statistics and records to Python objects. REQUIRES for all functions: the GIL is held.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "communicator/communicator.h"

namespace braid::adapter {

// The rows of Backend.stats().
std::vector<py::dict> rows_of(const Communicator& group);
// A dict in the form that torch._C._distributed_c10d._dump_fr_trace() pickles.
py::dict flight_record();

}  // namespace braid::adapter
