// SPDX-License-Identifier: Apache-2.0
// Schedules for Python: draw, verify, rehearse. Text is the common form.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "communicator/checks.h"
#include "executor/rehearsal.h"
#include "interpreter/without_gil.h"
#include "planner/planners.h"
#include "python/bind.h"
#include "schedule/text.h"
#include "verify/verify.h"

namespace py = pybind11;

namespace braid {
namespace {

template <class T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) throw py::value_error(result.status().message());
  return std::move(result).value();
}

CollectiveKind kind_named(const std::string& name) {
  const auto kind = collective_from_name(name);
  if (!kind) throw py::value_error("no collective is called \"" + name + "\"");
  return *kind;
}

std::vector<std::string> algorithms_of(const std::string& collective) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms(kind_named(collective))) names.emplace_back(algorithm.name);
  return names;
}

std::string plan(const std::string& collective, const std::string& algorithm, int ranks, int root,
                 std::vector<uint64_t> shares, std::vector<int> hosts, int aggregators) {
  const CollectiveKind kind = kind_named(collective);
  const Algorithm* found = find_algorithm(kind, algorithm);
  if (found == nullptr) {
    std::string known;
    for (const std::string& name : algorithms_of(collective)) known += (known.empty() ? "" : ", ") + name;
    throw py::value_error(collective + " has no algorithm \"" + algorithm + "\"; there are: " + known);
  }
  return to_text(
      value_or_raise(found->plan({kind, ranks, root}, {std::move(shares), std::move(hosts), aggregators})));
}

std::shared_ptr<const VerifiedSchedule> verified(const std::string& text) {
  return std::make_shared<const VerifiedSchedule>(
      value_or_raise(verify(value_or_raise(schedule_from_text(text)))));
}

// The view is kept among `views`: without it the array's owner may move the memory.
Bytes memory_of(const py::buffer& array, bool writable, std::vector<py::buffer_info>& views) {
  const py::buffer_info& info = views.emplace_back(array.request(writable));
  if (info.ndim > 1 || (info.ndim == 1 && info.strides[0] != info.itemsize && info.shape[0] > 1)) {
    throw py::value_error("expected contiguous one-dimensional arrays");
  }
  return {static_cast<std::byte*>(info.ptr), static_cast<size_t>(info.size * info.itemsize)};
}

void check_operands(const Schedule& schedule, const std::vector<Operands>& operands) {
  const Collective& collective = schedule.collective;
  if (operands.size() != static_cast<size_t>(collective.ranks)) {
    throw py::value_error("expected the arrays of " + std::to_string(collective.ranks) + " ranks, got " +
                          std::to_string(operands.size()));
  }
  const auto blocks = [&](int chunks) {
    return static_cast<size_t>(is_vector(collective.kind) ? std::min(chunks, 1) : chunks);
  };
  for (Node node = 0; node < collective.ranks; ++node) {
    const Operands& own = operands[static_cast<size_t>(node)];
    if (own.inputs.size() != blocks(input_chunks(collective, schedule.chunks, node)) ||
        own.outputs.size() != blocks(output_chunks(collective, schedule.chunks, node))) {
      throw py::value_error("rank " + std::to_string(node) + " has a wrong number of input or output arrays");
    }
    Operation operation;
    // A barrier's tokens are a vector, too.
    operation.kind = collective.kind == CollectiveKind::kBarrier ? CollectiveKind::kAllReduce : collective.kind;
    operation.root = collective.root;
    operation.dtype = own.dtype;
    operation.op = own.op;
    operation.inputs = own.inputs;
    operation.outputs = own.outputs;
    const Status wrong = check_operation(operation, node, collective.ranks);
    if (!wrong.ok()) throw py::value_error("rank " + std::to_string(node) + ": " + wrong.message());
  }
}

void rehearse_on_arrays(const std::string& text, const std::vector<std::vector<py::buffer>>& inputs,
                        const std::vector<std::vector<py::buffer>>& outputs, const std::string& dtype,
                        const std::string& op, size_t chunk_bytes, int window, bool single_copy, double delay_s) {
  const auto element = dtype_from_name(dtype);
  const auto operation = reduce_op_from_name(op);
  if (!element) throw py::value_error("unknown dtype \"" + dtype + "\"");
  if (!operation) throw py::value_error("unknown reduction \"" + op + "\"");
  if (chunk_bytes == 0 || chunk_bytes % 64 != 0) throw py::value_error("chunk_bytes must be a multiple of 64");
  if (!(delay_s >= 0 && delay_s <= 10)) throw py::value_error("delay_s must lie between 0 and 10");
  if (inputs.size() != outputs.size()) throw py::value_error("inputs and outputs name different numbers of ranks");
  const auto schedule = verified(text);
  if (is_reduction(schedule->schedule().collective.kind) && !is_defined(*element, *operation)) {
    throw py::value_error(undefined_text(*element, *operation));
  }
  std::vector<py::buffer_info> views;
  std::vector<Operands> operands;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    Operands own{*element, *operation, {}, {}};
    for (const py::buffer& array : inputs[rank]) own.inputs.push_back(memory_of(array, false, views));
    for (const py::buffer& array : outputs[rank]) own.outputs.push_back(memory_of(array, true, views));
    operands.push_back(std::move(own));
  }
  check_operands(schedule->schedule(), operands);
  RehearsalOptions options;
  options.execution = {chunk_bytes, window};
  options.loopback.read_peers = single_copy;
  options.loopback.delay = std::chrono::microseconds(static_cast<int64_t>(1e6 * delay_s));
  Status status;
  {
    const WithoutGil without_gil;
    status = rehearse(schedule, operands, options);
  }
  if (!status.ok()) throw std::runtime_error(status.message());
}

}  // namespace

void bind_schedule(py::module_& m) {
  m.def("algorithms", &algorithms_of, py::arg("collective"), "Names of the algorithms of a collective.");
  m.def(
      "plan", &plan, py::arg("collective"), py::arg("algorithm"), py::arg("ranks"), py::arg("root") = 0,
      py::arg("shares") = std::vector<uint64_t>(), py::arg("hosts") = std::vector<int>(),
      py::arg("aggregators") = 0,
      "Draw a schedule and return its text form. Raises ValueError for what no planner can draw. Aggregators are "
      "nodes after the ranks that only add up; where they are any, hosts and shares name them, too.");
  m.def(
      "verify", [](const std::string& text) { return verified(text)->digest(); }, py::arg("text"),
      "Prove a schedule given as text and return its digest. Raises ValueError with the reason when it is wrong.");
  m.def(
      "rehearse", &rehearse_on_arrays, py::arg("text"), py::arg("inputs"), py::arg("outputs"), py::arg("dtype"),
      py::arg("op") = "sum", py::arg("chunk_bytes") = 256 * 1024, py::arg("window") = 4,
      py::arg("single_copy") = false, py::arg("delay_s") = 0.0,
      "Run a schedule with one thread per node on one-dimensional arrays: per rank a list of input and a list of "
      "output blocks. Every frame takes delay_s seconds on its way. Raises ValueError for a wrong schedule or "
      "wrong arrays.");
}

}  // namespace braid
