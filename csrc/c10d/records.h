// SPDX-License-Identifier: Apache-2.0
// What braid keeps about itself, as Python sees it. REQUIRES, for all: the GIL is held.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "communicator/communicator.h"

namespace braid::adapter {

// The rows of Backend.stats().
std::vector<py::dict> rows_of(const Communicator& group);
// A dict as torch._C._distributed_c10d._dump_fr_trace() pickles it.
py::dict flight_record();

}  // namespace braid::adapter
