// SPDX-License-Identifier: Apache-2.0
#include "c10d/python_object.h"

#include <utility>

namespace braid::adapter {

std::shared_ptr<py::object> shared_object(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (Py_IsInitialized() == 0) {  // Python has ended, and its objects are gone
              static_cast<void>(held->release());
              delete held;
              return;
            }
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace braid::adapter
