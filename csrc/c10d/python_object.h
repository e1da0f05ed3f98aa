// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>

namespace braid::adapter {

// An object of Python that any thread may release, with or without the GIL. REQUIRES: the GIL is held now.
std::shared_ptr<pybind11::object> shared_object(pybind11::object object);

}  // namespace braid::adapter
