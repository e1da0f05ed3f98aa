// SPDX-License-Identifier: Apache-2.0
// The module braid._core. Each folder that Python sees has a bind_<folder>.cc beside this file.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/instruction_set.h"
#include "python/bind.h"

namespace py = pybind11;

namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (int i = 0; i < braid::kDTypeCount; ++i) names.emplace_back(braid::name_of(static_cast<braid::DType>(i)));
  return names;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "The torch-free core of braid.";
  m.attr("version") = BRAID_VERSION;
  m.attr("build_type") = BRAID_BUILD_TYPE;
  m.attr("commit") = BRAID_COMMIT;
  m.attr("compiler") = compiler();
  m.def("dtypes", &dtype_names, "Names of the element types the core knows, in the order of their wire numbers.");
  m.def(
      "reduce_instruction_set", [] { return std::string(braid::instruction_set_name()); },
      "What sums run on in this process: avx512, avx2 or baseline.");
  braid::bind_codec(m);
  braid::bind_bucket(m);
  braid::bind_communicator(m);
  braid::bind_copies(m);
  braid::bind_cost(m);
  braid::bind_cuda(m);
  braid::bind_low_rank(m);
  braid::bind_parameters(m);
  braid::bind_quick_method(m);
  braid::bind_rules(m);
  braid::bind_schedule(m);
  braid::bind_server(m);
  braid::bind_tuner(m);
}
