// SPDX-License-Identifier: Apache-2.0
// The Python module. It makes backends, and shows braid's functions that torch has no name for.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "c10d/backend.h"
#include "c10d/callbacks.h"
#include "c10d/gil.h"
#include "c10d/main_thread.h"
#include "c10d/open_futures.h"
#include "c10d/records.h"
#include "communicator/process.h"
#include "interpreter/explanation_dict.h"
#include "interpreter/stated_numbers.h"

namespace braid::adapter {
namespace {

// How long the end of the process waits for callbacks under way.
constexpr milliseconds kCallbackTime{2000};

std::optional<std::string> failure_of(const Backend& backend) {
  const Status failure = backend.group().failure();
  if (failure.ok()) return std::nullopt;
  return std::string(name_of(failure.code())) + ": " + failure.message();
}

py::dict explain(const Backend& backend, const std::string& collective, int64_t bytes, const std::string& dtype,
                 const std::string& op, int root, const std::string& codec) {
  const auto explanation = [&] {
    const WithoutGil without_gil;  // slow at first: it plans and verifies schedules
    return braid::explain(backend.group(), collective, dtype, op, root, bytes, codec);
  }();
  raise_if_failed(explanation.status(), {backend.getRank(), {}});
  return dict_of<py::dict>(explanation.value());
}

// Call it at exit only. Then Python has printed the exception that ended the script, and still remembers it.
void leave_at_exit() {
  std::string reason;
  PyObject* uncaught = PySys_GetObject("last_type");
  const bool interactive = PySys_GetObject("ps1") != nullptr;  // there errors do not end the process
  if (!interactive && uncaught != nullptr && PyType_Check(uncaught)) {
    const std::string type = reinterpret_cast<PyTypeObject*>(uncaught)->tp_name;
    reason = "its process ends after an uncaught " + type;
  }
  const WithoutGil without_gil;
  Interrupts interrupts;  // Ctrl-C ends the waiting
  leave_all_groups(reason, interrupts.give_up());
  wait_for_callbacks(deadline_after(kCallbackTime), interrupts.give_up());
  throw_if_any(interrupts);
}

// Waits for signals: Python writes their numbers to its wakeup descriptor. Returns false if the descriptor cannot
// be read. For Ctrl-C it also returns an object that tells when the main thread has handled it; else null.
std::pair<bool, std::shared_ptr<MainThreadReturns>> next_signals(int descriptor) {
  std::array<char, 256> numbers{};
  ssize_t count = 0;
  std::shared_ptr<MainThreadReturns> returns;
  {
    const WithoutGil without_gil;  // ask at once: the main thread may handle the signal and wait again
    do count = ::read(descriptor, numbers.data(), numbers.size());
    while (count < 0 && errno == EINTR);
    const auto end = numbers.begin() + std::max<ssize_t>(count, 0);
    if (std::find(numbers.begin(), end, static_cast<char>(SIGINT)) != end) returns = MainThreadReturns::ask();
  }
  return {count > 0, returns};
}

}  // namespace
}  // namespace braid::adapter

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using braid::adapter::Backend;
  py::module_::import("torch._C._distributed_c10d");  // registers the base class

  using braid::adapter::BackendOptions;
  const auto copy = [](const BackendOptions& options) { return c10::make_intrusive<BackendOptions>(options); };
  py::class_<BackendOptions, c10::intrusive_ptr<BackendOptions>, ::c10d::Backend::Options>(m, "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def("__copy__", copy)
      .def("__deepcopy__", [copy](const BackendOptions& options, const py::dict&) { return copy(options); });

  py::class_<Backend, c10::intrusive_ptr<Backend>, ::c10d::Backend>(m, "Backend")
      .def_property_readonly(
          "options", [](Backend& backend) { return backend.getBackendOptions(); },
          "A copy of the group's options, as torch's split_group() asks for it.")
      .def(
          "perform_nocolor_split", [](Backend&, const py::object&) {},
          "What new_group() calls on ranks that stay outside; they have nothing to do here.")
      .def(
          "stats", [](const Backend& backend) { return braid::adapter::rows_of(backend.group()); },
          "One dict per collective and family of algorithm, with its counters; see braid.stats().")
      .def("explain", &braid::adapter::explain, py::arg("collective"), py::arg("nbytes"),
           py::arg("dtype") = "float32", py::arg("op") = "sum", py::arg("root") = 0, py::arg("codec") = "",
           "Which algorithm would carry an operation, and why; see braid.Communicator.explain().")
      .def("lossy_allreduce", &Backend::lossy_allreduce, py::arg("tensor"), py::arg("codec"), py::arg("residual"),
           py::arg("seed"), py::arg("options"), py::call_guard<braid::WithoutGil>(),
           "An all_reduce between hosts in fewer bytes; see braid.lossy_all_reduce().")
      .def("lossy_reduce_scatter", &Backend::lossy_reduce_scatter, py::arg("output"), py::arg("input"),
           py::arg("codec"), py::arg("residual"), py::arg("seed"), py::arg("options"),
           py::call_guard<braid::WithoutGil>(),
           "A reduce_scatter between hosts in fewer bytes; see braid.lossy_reduce_scatter().")
      .def_property_readonly(
          "is_on_several_hosts", [](const Backend& backend) { return backend.group().is_on_several_hosts(); },
          "Whether the ranks are on more than one host. Nothing is encoded where they are all on one.")
      .def(
          "wires", [](const Backend& backend) { return backend.group().describe_wires(); },
          "One line per peer: which wire joins us, and why not a better one.")
      .def("failure", &braid::adapter::failure_of, "What the group failed with, or None.");

  py::module_::import("atexit").attr("register")(py::cpp_function(&braid::adapter::leave_at_exit));

  m.def("flight_record", &braid::adapter::flight_record,
        "The last operations of this process, in the form of torch's flight recorder.");
  using braid::adapter::MainThreadReturns;
  py::class_<MainThreadReturns, std::shared_ptr<MainThreadReturns>>(m, "MainThreadReturns")
      .def("wait", &MainThreadReturns::wait, py::arg("limit"), py::call_guard<braid::WithoutGil>(),
           "Whether the main thread has come back to Python within that time.");
  m.def("next_signals", &braid::adapter::next_signals, py::arg("descriptor"),
        "Waits for signals at the wakeup descriptor. Returns whether it can be read, and for Ctrl-C a "
        "MainThreadReturns, else None.");
  m.def("interrupt_open_futures", &braid::adapter::interrupt_open_futures, py::call_guard<braid::WithoutGil>(),
        "Ends what waits for futures of operations under way: KeyboardInterrupt in the main thread.");
  m.def(
      "create_backend",
      [](const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
         const std::string& group_id, const std::vector<int64_t>& global_ranks, const std::string& known_as,
         const c10::intrusive_ptr<::c10d::Store>& servers,
         const std::optional<braid::StatedNumbers>& links) -> c10::intrusive_ptr<::c10d::Backend> {
        return Backend::create({store, rank, size, timeout, group_id, global_ranks, known_as, servers,
                                braid::stated_links_of(links)});
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("group_id"),
      py::arg("global_ranks"), py::arg("known_as") = "braid", py::arg("servers") = nullptr,
      py::arg("links") = py::none(), py::call_guard<braid::WithoutGil>(),
      "Forms the group through the store and returns its backend.");
}
