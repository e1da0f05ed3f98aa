// SPDX-License-Identifier: Apache-2.0
#include "c10d/gil.h"

#include <torch/csrc/utils/pybind.h>

namespace braid::adapter {

void throw_if_any(Interrupts& interrupts) {
  if (!interrupts.any()) return;
  const py::gil_scoped_acquire gil;
  interrupts.restore();
  throw py::error_already_set();
}

}  // namespace braid::adapter
