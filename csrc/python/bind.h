// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace braid {

void bind_bucket(pybind11::module_& m);
void bind_codec(pybind11::module_& m);
void bind_communicator(pybind11::module_& m);
void bind_copies(pybind11::module_& m);
void bind_cost(pybind11::module_& m);
void bind_cuda(pybind11::module_& m);
void bind_low_rank(pybind11::module_& m);
void bind_parameters(pybind11::module_& m);
void bind_quick_method(pybind11::module_& m);
void bind_rules(pybind11::module_& m);
void bind_schedule(pybind11::module_& m);
void bind_server(pybind11::module_& m);
void bind_tuner(pybind11::module_& m);

}  // namespace braid
