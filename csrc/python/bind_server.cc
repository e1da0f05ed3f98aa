// SPDX-License-Identifier: Apache-2.0
// braid aggregator, for Python.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "aggregator/aggregator.h"
#include "interpreter/without_gil.h"
#include "python/array_communicator.h"
#include "python/bind.h"
#include "python/python_store.h"

namespace braid {
namespace {

// What the callbacks raise ends the serving, and is raised again.
void serve_from_python(py::object store, const std::string& reach, const std::optional<StatedNumbers>& links,
                       const py::function& stopped, const py::function& say) {
  auto options = options_from_env();
  raise_if_failed(options.status());
  if (!reach.empty()) options.value().reach = reach;
  options.value().stated = stated_links_of(links);
  const auto rendezvous_store = std::make_shared<PythonStore>(std::move(store));
  std::exception_ptr raised;
  const auto guarded = [&](const auto& call) {
    const py::gil_scoped_acquire acquire;
    try {
      return call();
    } catch (const std::exception&) {
      raised = std::current_exception();
      return true;
    }
  };
  ServerCalls calls;
  calls.stopped = [&] {
    return raised || guarded([&] {
             if (PyErr_CheckSignals() != 0) throw py::error_already_set();
             return stopped().cast<bool>();
           });
  };
  calls.say = [&](const std::string& line) {
    guarded([&] {
      say(line);
      return true;
    });
  };
  Status over;
  {
    const WithoutGil without_gil;
    over = serve(rendezvous_store, options.value(), calls);
  }
  if (raised) std::rethrow_exception(raised);
  if (!over.ok()) rendezvous_store->raise_what_was_caught();
  raise_if_failed(over);
}

}  // namespace

void bind_server(py::module_& m) {
  m.def("serve", &serve_from_python, py::arg("store"), py::arg("reach"), py::arg("links"), py::arg("stopped"),
        py::arg("say"), "Works as an aggregator until stopped() is true; see csrc/aggregator/aggregator.h.");
}

}  // namespace braid
