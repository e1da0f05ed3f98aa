// SPDX-License-Identifier: Apache-2.0
// The Python module. It makes backends, and shows braid's functions that torch has no name for.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <tuple>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "c10d/backend.h"
#include "c10d/callbacks.h"
#include "c10d/copied.h"
#include "c10d/copy_rates.h"
#include "c10d/device.h"
#include "c10d/flags.h"
#include "c10d/gil.h"
#include "c10d/main_thread.h"
#include "c10d/mutations.h"
#include "c10d/open_futures.h"
#include "c10d/python_object.h"
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
                 const std::string& op, int root, const std::string& codec, const std::string& device) {
  const auto explanation = [&] {
    const WithoutGil
        without_gil;  // slow at first: it plans and verifies schedules, and measures a device's copies
    std::optional<DeviceCopies> copies;
    if (const c10::Device where(device); !where.is_cpu()) {
      const auto settings = copy_settings_from_env();
      raise_if_failed(settings.status(), {backend.getRank(), {}});
      const size_t piece_bytes = codec.empty() ? settings.value().piece_bytes : 0;
      copies = DeviceCopies{copy_rates(where), static_cast<int64_t>(piece_bytes)};
    }
    return braid::explain(backend.group(), collective, dtype, op, root, bytes, codec, copies);
  }();
  raise_if_failed(explanation.status(), {backend.getRank(), {}});
  auto dict = dict_of<py::dict>(explanation.value());
  const c10::Device where(device);
  const auto [by_leg, why] = backend.leg_choice(collective, bytes, dtype, op, where.type());
  dict["local_leg"] = by_leg;
  dict["local_leg_reason"] = why;
  return dict;
}

using LegTuples = std::map<std::string, std::vector<std::tuple<int64_t, double, double>>>;

LegTable table_of(const LegTuples& tuples) {
  std::map<std::string, std::vector<LegRow>> rows;
  for (const auto& [operation, of_operation] : tuples) {
    for (const auto& [bytes, flat_s, leg_s] : of_operation) rows[operation].push_back({bytes, flat_s, leg_s});
  }
  return LegTable(std::move(rows));
}

// Errors of the function are logged: they are no errors of the operation.
std::function<void(int)> logging_errors(const py::function& function) {
  return [function = shared_object(function)](int index) {
    const py::gil_scoped_acquire gil;
    const Status thrown = caught("noting the first device", [&] { (*function)(index); });
    if (!thrown.ok()) log(LogLevel::kWarning, thrown.message());
  };
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
  Courier::end_all();
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
  using braid::adapter::LegTuples;
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
          "One dict per collective and algorithm, with its counters; see braid.stats().")
      .def("explain", &braid::adapter::explain, py::arg("collective"), py::arg("nbytes"),
           py::arg("dtype") = "float32", py::arg("op") = "sum", py::arg("root") = 0, py::arg("codec") = "",
           py::arg("device") = "cpu",
           "Which algorithm would carry an operation, and why; see braid.Communicator.explain().")
      .def("lossy_allreduce", &Backend::lossy_allreduce, py::arg("tensor"), py::arg("codec"), py::arg("residual"),
           py::arg("seed"), py::arg("options"), py::call_guard<braid::WithoutGil>(),
           "An all_reduce between hosts in fewer bytes; see braid.lossy_all_reduce().")
      .def("lossy_reduce_scatter", &Backend::lossy_reduce_scatter, py::arg("output"), py::arg("input"),
           py::arg("codec"), py::arg("residual"), py::arg("seed"), py::arg("options"),
           py::call_guard<braid::WithoutGil>(),
           "A reduce_scatter between hosts in fewer bytes; see braid.lossy_reduce_scatter().")
      .def(
          "use_local_leg",
          [](Backend& backend, const c10::intrusive_ptr<::c10d::Backend>& local,
             const c10::intrusive_ptr<::c10d::Backend>& across, const std::string& name,
             const std::vector<std::string>& devices, const std::vector<int>& hosts, const LegTuples& table,
             const py::object& coder) {
            auto encoder = std::make_shared<const braid::adapter::LegCoder>(coder);
            const braid::WithoutGil without_gil;
            std::vector<c10::DeviceType> types;
            for (const std::string& device : devices) types.push_back(c10::Device(device).type());
            backend.use_local_leg({local, across, name, std::move(types), hosts, braid::adapter::table_of(table),
                                   std::move(encoder)});
          },
          py::arg("local"), py::arg("across"), py::arg("name"), py::arg("devices"), py::arg("hosts"),
          py::arg("table"), py::arg("coder"),
          "Lets another backend carry collectives within hosts; see python/braid/_torch/local_leg.py.")
      .def("say_why_no_leg", &Backend::say_why_no_leg, py::arg("why"),
           "What explain() says of a group without one.")
      .def(
          "at_first_device_call",
          [](Backend& backend, const py::function& call) {
            backend.at_first_device_call(braid::adapter::logging_errors(call));
          },
          py::arg("call"), "Calls a function once, with the index of the device of the first operation.")
      .def_property_readonly(
          "is_on_several_hosts", [](const Backend& backend) { return backend.group().is_on_several_hosts(); },
          "Whether the ranks are on more than one host. Nothing is encoded where they are all on one.")
      .def(
          "wires", [](const Backend& backend) { return backend.group().describe_wires(); },
          "One line per peer: which wire joins us, and why not a better one.")
      .def(
          "topology", [](const Backend& backend) { return backend.group().topology_text(); },
          "Hosts, latencies and NICs; see braid.Communicator.topology().")
      .def("failure", &braid::adapter::failure_of, "What the group failed with, or None.");

  m.def(
      "on_derived",
      [](const py::function& call) {
        using braid::adapter::BackendConfig;
        Backend::on_derived([call = braid::adapter::shared_object(call)](const c10::intrusive_ptr<Backend>& made,
                                                                         const BackendConfig& config) {
          const py::gil_scoped_acquire gil;
          (*call)(made, config.store, config.rank, config.size, config.timeout, config.group_id,
                  config.global_ranks);
        });
      },
      py::arg("call"),
      "Calls a function with each group that is derived from another one: its backend, store, rank, size, "
      "timeout, "
      "name and global ranks.");

  // For plug-ins of devices: the addresses of functions like Flags::wait and Flags::write.
  m.def(
      "offer_flags",
      [](const std::string& device, uintptr_t wait, uintptr_t write) {
        using Wait = decltype(braid::adapter::Flags::wait);
        using Write = decltype(braid::adapter::Flags::write);
        braid::adapter::offer_flags(c10::Device(device).type(),
                                    {reinterpret_cast<Wait>(wait), reinterpret_cast<Write>(write)});
      },
      py::arg("device"), py::arg("wait"), py::arg("write"));

#ifdef BRAID_TEST_MUTATIONS
  m.def("mutate",
        [](int mutation) { braid::adapter::chosen_mutation = static_cast<braid::adapter::Mutation>(mutation); });
#endif

  py::module_::import("atexit").attr("register")(py::cpp_function(&braid::adapter::leave_at_exit));

  m.def(
      "why_no_path", [](const std::string& device) { return braid::adapter::why_no_path(c10::Device(device)); },
      py::arg("device"), "Why tensors of a device cannot be moved; \"\" if they can.");
  m.def(
      "has_stream_waits",
      [](const std::string& device) { return braid::adapter::has_flags(c10::Device(device).type()); },
      py::arg("device"), "Whether wait() lets streams of a device wait, and not the CPU.");
  m.def(
      "copied_bytes",
      [](const std::string& group) { return braid::of_this_process<braid::adapter::CopiedBytes>().of(group); },
      py::arg("group"), "Bytes that the group of this name has copied down from accelerators, and up to them.");
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
         const c10::intrusive_ptr<::c10d::Store>& servers, const std::optional<braid::StatedNumbers>& links,
         const std::string& also_equal) -> c10::intrusive_ptr<::c10d::Backend> {
        return Backend::create({store, rank, size, timeout, group_id, global_ranks, known_as, servers,
                                braid::stated_links_of(links), also_equal});
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("group_id"),
      py::arg("global_ranks"), py::arg("known_as") = "braid", py::arg("servers") = nullptr,
      py::arg("links") = py::none(), py::arg("also_equal") = "", py::call_guard<braid::WithoutGil>(),
      "Forms the group through the store and returns its backend.");
}
