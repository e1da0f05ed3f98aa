// SPDX-License-Identifier: Apache-2.0
// Communicators for Python: the part of braid.Communicator that is not Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interpreter/explanation_dict.h"
#include "interpreter/interrupts.h"
#include "interpreter/without_gil.h"
#include "python/array_communicator.h"
#include "python/bind.h"

namespace braid {
namespace {

// A deadline so far ahead still fits the clock.
constexpr double kLongestSeconds = 1e9;

// None means no limit, as 0 does to the core.
milliseconds milliseconds_of(std::optional<double> seconds) {
  if (!seconds) return milliseconds(0);
  return milliseconds(static_cast<int64_t>(std::ceil(std::min(*seconds, kLongestSeconds) * 1000)));
}

std::vector<py::dict> rows_of(const std::vector<OperationStats>& all) {
  std::vector<py::dict> rows;
  for (const OperationStats& stats : all) {
    py::dict row;
    for_each_field(stats, [&](const char* name, const auto& value) { row[name] = value; });
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<py::dict> stats_of_all() {
  std::vector<py::dict> groups;
  for (const auto& group : all_groups()) {
    py::dict entry;
    entry["group"] = group->name();
    entry["rank"] = group->rank();
    entry["ranks"] = group->ranks();
    entry["operations"] = rows_of(group->stats());
    const Waits waits = group->waits();
    py::list waiting;
    for (const Wait& wait : waits.now) {
      py::dict row;
      row["operation"] = wait.operation;
      row["seconds"] = wait.seconds;
      row["ranks"] = wait.ranks;
      waiting.append(std::move(row));
    }
    entry["waiting"] = std::move(waiting);
    entry["notices"] = waits.notices;
    entry["longest_wait_s"] = waits.longest_s;
    groups.push_back(std::move(entry));
  }
  return groups;
}

std::vector<std::string> reduce_op_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kReduceOpCount; ++i) names.emplace_back(name_of(static_cast<ReduceOp>(i)));
  return names;
}

using Counts = std::vector<size_t>;
// Latency in seconds, and seconds per byte, of copies down and of copies up.
using Rates = std::pair<std::pair<double, double>, std::pair<double, double>>;

}  // namespace

void bind_communicator(py::module_& m) {
  py::class_<ArrayRequest>(m, "Request")
      .def("done", &ArrayRequest::done)
      .def("source", &ArrayRequest::source)
      .def(
          "wait",
          [](ArrayRequest& request, std::optional<double> timeout_s) { request.wait(milliseconds_of(timeout_s)); },
          py::arg("timeout_s") = py::none());

  py::class_<ArrayCommunicator>(m, "Communicator")
      .def(py::init([](py::object store, int rank, int size, const std::string& name,
                       std::optional<double> timeout_s, const std::string& reach,
                       const std::optional<StatedNumbers>& links, py::object servers) {
             return ArrayCommunicator::create(std::move(store), rank, size, name, milliseconds_of(timeout_s),
                                              reach, links, std::move(servers));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("timeout_s"),
           py::arg("reach"), py::arg("links") = py::none(), py::arg("servers") = py::none())
      .def("run",
           [](ArrayCommunicator& self, const std::string& collective, const std::string& dtype,
              const std::string& op, int root, py::object input, Counts in, py::object output, Counts out) {
             self.run(collective, dtype, op, root, {std::move(input), std::move(in)},
                      {std::move(output), std::move(out)});
           })
      .def("start",
           [](ArrayCommunicator& self, const std::string& collective, const std::string& dtype,
              const std::string& op, int root, py::object input, Counts in, py::object output, Counts out) {
             return self.start(collective, dtype, op, root, {std::move(input), std::move(in)},
                               {std::move(output), std::move(out)});
           })
      .def("send", &ArrayCommunicator::send)
      .def("recv", &ArrayCommunicator::recv)
      .def("set_timeout",
           [](const ArrayCommunicator& self, std::optional<double> timeout_s) {
             self.group()->set_timeout(milliseconds_of(timeout_s));
           })
      .def("abort",
           [](const ArrayCommunicator& self, const std::string& reason) {
             const auto group = self.group();
             const WithoutGil without_gil;
             group->abort(reason);
           })
      .def("failure",
           [](const ArrayCommunicator& self) -> std::optional<std::string> {
             const Status failure = self.group()->failure();
             if (failure.ok()) return std::nullopt;
             return std::string(name_of(failure.code())) + ": " + failure.message();
           })
      .def("stats", [](const ArrayCommunicator& self) { return rows_of(self.group()->stats()); })
      .def(
          "explain",
          [](const ArrayCommunicator& self, const std::string& collective, const std::string& dtype,
             const std::string& op, int root, int64_t bytes, const std::string& codec,
             const std::optional<Rates>& copies) {
            std::optional<DeviceCopies> device;
            if (copies) {
              const auto& [down, up] = *copies;
              device = DeviceCopies{{{down.first, down.second}, {up.first, up.second}}};
            }
            const auto explanation = [&, group = self.group()] {
              const WithoutGil without_gil;  // the first of its kind draws and proves schedules
              return explain(*group, collective, dtype, op, root, bytes, codec, device);
            }();
            raise_if_failed(explanation.status());
            return dict_of<py::dict>(explanation.value());
          },
          py::arg("collective"), py::arg("dtype"), py::arg("op"), py::arg("root"), py::arg("bytes"),
          py::arg("codec") = "", py::arg("copies") = py::none())
      .def("lossy_all_reduce", &ArrayCommunicator::start_lossy, py::arg("array"), py::arg("codec"), py::arg("op"),
           py::arg("residual"), py::arg("seed"))
      .def("topology", [](const ArrayCommunicator& self) { return self.group()->topology_text(); })
      .def("wires", [](const ArrayCommunicator& self) { return self.group()->describe_wires(); })
      .def("close", &ArrayCommunicator::close);

  m.def("reduce_ops", &reduce_op_names,
        "Names of the reductions the core knows, in the order of their wire numbers.");
  m.def("stats", &stats_of_all, "Name, rank, size and counters of every group of this process.");
  m.def(
      "wait_counts",
      [] {
        const WaitTotals waits = waits_of_process();
        return std::map<std::string, uint64_t>{
            {"turns", waits.turns}, {"yields", waits.yields}, {"sleeps", waits.sleeps}};
      },
      "How often this process's waits polled in vain, gave their core away, and slept.");
  m.def(
      "leave_all_groups",
      [](const std::string& reason) {
        Interrupts interrupts;  // Ctrl-C ends the waiting
        {
          const WithoutGil without_gil;
          leave_all_groups(reason, interrupts.give_up());
        }
        if (interrupts.restore()) throw py::error_already_set();
      },
      py::arg("reason"));
}

}  // namespace braid
