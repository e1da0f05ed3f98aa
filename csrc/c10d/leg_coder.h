// SPDX-License-Identifier: Apache-2.0
// Encodes what a local leg sends between hosts where the tensors are, so that only messages are copied to the host.
// The work is done in Python: LegCoder of python/braid/_torch/on_device.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braid::adapter {

// What follows the start of an exchange between hosts, in this order. Each step may block, and then queues its work
// on the current stream. After the last one that stream has the results.
using Steps = std::vector<std::function<void()>>;
inline constexpr size_t kMostSteps = 2;

// How messages between hosts are encoded. The residual is of the whole vector; it may be left out.
struct LegCodec {
  const std::string& codec;
  const std::optional<at::Tensor>& residual;
  uint32_t seed;
};

// Thread safety: any number of threads. The GIL need not be held, and is not held while a step blocks.
class LegCoder {
 public:
  explicit LegCoder(pybind11::object coder);  // REQUIRES: the GIL is held

  // Each starts an exchange of tensors of one dimension. Returns nothing, and has done nothing, if the host must encode
  // them. `residual`: of as many elements as the tensor, or the input.
  std::optional<Steps> all_reduce(const at::Tensor& tensor, const std::string& codec,
                                  const std::optional<at::Tensor>& residual, bool averages) const;
  std::optional<Steps> reduce_scatter(const at::Tensor& output, const at::Tensor& input, const std::string& codec,
                                      const std::optional<at::Tensor>& residual, bool averages) const;

 private:
  std::shared_ptr<pybind11::object> coder_;
};

}  // namespace braid::adapter
