// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace simulated {

// The memory of a device tensor as a CPU tensor, for the threads of the streams. It keeps nothing alive.
at::Tensor on_host(const at::Tensor& tensor);

}  // namespace simulated
