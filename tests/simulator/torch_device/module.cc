// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/utils/pybind.h>

#include "allocators.h"
#include "copies.h"
#include "current_stream.h"

namespace simulated {
void register_guard_and_hooks();  // guard.cc
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  simulated::register_guard_and_hooks();
  m.def(
      "set_delays",
      [](int64_t on_default, int64_t on_pool, int64_t random, uint32_t seed) {
        simulator::set_delays({on_default, on_pool, random, seed});
      },
      py::arg("on_default") = 0, py::arg("on_pool") = 0, py::arg("random") = 0, py::arg("seed") = 0);
  m.def(
      "hold", [](bool on_default, bool on_pool) { simulator::hold({on_default, on_pool}); },
      py::arg("on_default") = false, py::arg("on_pool") = false);
  m.def(
      "set_rates", [](double down, double up) { simulated::set_rates({down, up}); }, py::arg("down") = 0,
      py::arg("up") = 0);
  m.def(
      "hold_down",
      [](size_t first, double limit_s) {
        simulated::set_down_gate({first, std::chrono::duration<double>(limit_s)});
      },
      py::arg("first"), py::arg("limit_s"));
  m.def("let_down", [] { simulated::set_down_gate({}); });
  m.def("lock_driver", &simulator::lock_driver, py::arg("on"));
  m.def("take_trace", &simulated::take_trace);
  m.def("copies_done", &simulated::copies_done);
  m.def("take_peak_pinned_bytes", [] { return simulated::pinned_blocks().take_peak_bytes(); });
  m.def("flag_wait", [] { return reinterpret_cast<uintptr_t>(&simulated::wait_for_flag); });
  m.def("flag_write", [] { return reinterpret_cast<uintptr_t>(&simulated::write_flag); });
  m.def("set_capturing", [](bool capturing) { simulated::current_stream().capturing = capturing; });
  m.def("synchronize", &simulator::drain_all, py::call_guard<py::gil_scoped_release>());
  m.def("device_bytes", [] { return simulated::device_blocks().live_bytes(); });
  m.def("pinned_bytes", [] { return simulated::pinned_blocks().live_bytes(); });
}
