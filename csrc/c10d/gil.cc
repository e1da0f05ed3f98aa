// SPDX-License-Identifier: Apache-2.0
#include "c10d/gil.h"

#include <torch/csrc/utils/pybind.h>

namespace braid::adapter {

WithoutGil::WithoutGil() {
  if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (saved_ != nullptr) PyEval_RestoreThread(saved_);
}

void throw_if_any(Interrupts& interrupts) {
  if (!interrupts.any()) return;
  const py::gil_scoped_acquire gil;
  interrupts.restore();
  throw py::error_already_set();
}

}  // namespace braid::adapter
