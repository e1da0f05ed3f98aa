// SPDX-License-Identifier: Apache-2.0
// The choice of algorithms, for Python, without any group: what one on a given topology would do.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator/explanation.h"
#include "interpreter/explanation_dict.h"
#include "interpreter/without_gil.h"
#include "links/tuning.h"
#include "options/stated_links.h"
#include "python/array_communicator.h"
#include "python/bind.h"

namespace braid {
namespace {

std::unique_ptr<Tuner> make_tuner(const std::string& text, const std::string& algorithm) {
  auto topology = topology_from_text(text);
  raise_if_failed(topology.status());
  auto options = options_from_env();
  raise_if_failed(options.status());
  if (!algorithm.empty()) options.value().algorithm = algorithm;
  auto tuner = tuner_for(std::move(topology).value(), options.value());
  raise_if_failed(tuner.status());
  return std::move(tuner).value();
}

std::string topology_of(const std::vector<int>& hosts, double alpha_s, double beta_s_per_byte,
                        const std::vector<std::pair<double, double>>& nics) {
  if (hosts.empty() || hosts.size() != nics.size()) throw py::value_error("expected a host and a card per rank");
  std::vector<Topology::Nic> rates;
  for (const auto& [up, down] : nics) rates.push_back({up, down});
  const bool one_host = std::equal(hosts.begin() + 1, hosts.end(), hosts.begin());
  auto topology =
      stated_topology(hosts, one_host ? link_inside({}) : kWithinHost, {alpha_s, beta_s_per_byte}, rates);
  raise_if_failed(topology.status());
  return to_text(topology.value());
}

}  // namespace

void bind_tuner(py::module_& m) {
  py::class_<Tuner>(m, "Tuner")
      .def(py::init(&make_tuner), py::arg("topology"), py::arg("algorithm") = "",
           "What a group on this topology would choose, with settings from the environment. Raises ValueError for "
           "what is no topology's text, or no algorithm.")
      .def(
          "explain",
          [](Tuner& tuner, const std::string& collective, const std::string& dtype, const std::string& op,
             int root, int64_t bytes, const std::string& codec) {
            const auto explanation = [&] {
              const WithoutGil without_gil;  // the first of its kind draws and proves schedules
              return explain(tuner, collective, dtype, op, root, bytes, codec);
            }();
            raise_if_failed(explanation.status());
            return dict_of<py::dict>(explanation.value());
          },
          py::arg("collective"), py::arg("dtype"), py::arg("op"), py::arg("root"), py::arg("bytes"),
          py::arg("codec") = "");
  m.def(
      "stated_topology", &topology_of, py::arg("hosts"), py::arg("alpha_s"), py::arg("beta_s_per_byte"),
      py::arg("cards"),
      "The text of a topology of ranks on these hosts, with latency and rate between hosts, and per rank what its "
      "host's card needs per byte: (up, down).");
  m.attr("assumed_between") = std::pair(kBetweenHosts.alpha_s, kBetweenHosts.beta_s_per_byte);
}

}  // namespace braid
