// SPDX-License-Identifier: Apache-2.0
// What the cost model knows, for Python: the best split among owners with unequal NICs, and the weights it becomes.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "cost/shares.h"
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

std::vector<uint64_t> shares_on(const std::string& text, int aggregators, bool of_hosts) {
  Result<Topology> topology = topology_from_text(text);
  if (!topology.ok()) throw py::value_error(topology.status().message());
  if (aggregators < 0 || aggregators >= topology.value().nodes()) {
    throw py::value_error(std::to_string(aggregators) + " aggregators among " +
                          std::to_string(topology.value().nodes()) + " nodes");
  }
  return of_hosts ? host_shares(topology.value(), aggregators) : rank_shares(topology.value(), aggregators);
}

}  // namespace

void bind_cost(py::module_& m) {
  m.def(
      "optimal_split", &split_among, py::arg("up"), py::arg("down"), py::arg("contributes"), py::arg("push") = 1.0,
      py::arg("pull") = 1.0,
      "The shares of a vector that owners with cards of these bytes per second should own in a direct all-reduce, "
      "and the seconds it then takes per byte: (seconds_per_byte, shares). Raises ValueError for what is not a "
      "rate.");
  m.def("shares_on", &shares_on, py::arg("topology"), py::arg("aggregators") = 0, py::arg("of_hosts") = false,
        "The weights of owners for a topology given as text, whose last nodes are aggregators; empty when equal "
        "ones "
        "are as good. Raises ValueError for a wrong text or number.");
}

}  // namespace braid
