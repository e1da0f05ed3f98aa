// SPDX-License-Identifier: Apache-2.0
// Copies between the host and the simulated device: their order, and how long they take.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>

namespace simulated {

// Bytes per second in each direction; 0: as fast as the machine copies.
struct Rates {
  double down = 0;
  double up = 0;
};
void set_rates(Rates rates);

// Copies down from the `first` one of a trace wait until a copy up has ended, or the limit has passed.
struct DownGate {
  size_t first = std::numeric_limits<size_t>::max();
  std::chrono::duration<double> limit{0};
};
void set_down_gate(DownGate gate);

// Copies, and sleeps until the copy has taken as long as its direction's rate says.
void copy_down(const at::Tensor& to, const at::Tensor& from);
void copy_up(const at::Tensor& to, const at::Tensor& from);

// The copies from and to pinned memory since the last call, in the order of their ends: "d" down, "u" up.
std::string take_trace();
size_t copies_done();  // in the trace

}  // namespace simulated
