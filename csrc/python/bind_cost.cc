// SPDX-License-Identifier: Apache-2.0
// What the cost model knows, for Python: the best split among owners with unequal cards.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "cost/split.h"
#include "python/bind.h"

namespace py = pybind11;

namespace braid {
namespace {

std::pair<double, std::vector<double>> split_among(const std::vector<double>& up, const std::vector<double>& down,
                                                   const std::vector<bool>& contributes, double push,
                                                   double pull) {
  if (up.size() != down.size() || up.size() != contributes.size()) {
    throw py::value_error("up, down and contributes must name the same number of owners");
  }
  std::vector<Owner> owners;
  for (size_t k = 0; k < up.size(); ++k) owners.push_back({up[k], down[k], contributes[k]});
  Result<Split> split = optimal_split(owners, push, pull);
  if (!split.ok()) throw py::value_error(split.status().message());
  return {split.value().seconds_per_byte, std::move(split.value().shares)};
}

}  // namespace

void bind_cost(py::module_& m) {
  m.def(
      "optimal_split", &split_among, py::arg("up"), py::arg("down"), py::arg("contributes"), py::arg("push") = 1.0,
      py::arg("pull") = 1.0,
      "The shares of a vector that owners with cards of these bytes per second should own in a direct all-reduce, "
      "and the seconds it then takes per byte: (seconds_per_byte, shares). Raises ValueError for what is not a "
      "rate.");
}

}  // namespace braid
