// SPDX-License-Identifier: Apache-2.0
// Tensors as plain memory: which tensors braid can take, their element types, and the place of their bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"

namespace braid::adapter {

// The subject of an error message: "all_gather: output 2". It is made on every call, but becomes text only on
// failure.
struct Subject {
  const char* operation = "";
  const char* part = "tensor";
  int64_t index = -1;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);

// Each check throws the c10 error that Python shows as ValueError, TypeError or NotImplementedError.

// A dense tensor in host memory, or on a device that braid has a path for.
void check_tensor(const at::Tensor& tensor, const Subject& what);
void check_same_dtype(const at::Tensor& tensor, const at::Tensor& like, const Subject& what);
void check_same_shape(const at::Tensor& tensor, const at::Tensor& like, const Subject& what);

// The element type for an operation that only moves data. Types that braid does not know are moved as bytes.
DType dtype_to_move(const at::Tensor& tensor);
// The element type in which the tensor is reduced; the operator is defined for it.
DType dtype_to_reduce(const at::Tensor& tensor, ReduceOp op, const Subject& what);
ReduceOp reduce_op_of(const ::c10d::ReduceOp& op, const Subject& what);
// The factor of PREMUL_SUM for this rank's input: a tensor of one element. None for other operators.
std::optional<at::Tensor> factor_of(const ::c10d::ReduceOp& op, const at::Tensor& tensor, const Subject& what);

// From a tensor's first byte to its last, with the gaps between. Any device.
ConstBytes extent_of(const at::Tensor& tensor);
bool overlap(ConstBytes a, ConstBytes b);

// Contiguous in row-major order, and neither conjugated nor negated: the bytes of such views differ from their
// values.
bool in_one_piece(const at::Tensor& tensor);
// The memory of a CPU tensor in one piece.
Bytes bytes_of(const at::Tensor& tensor);
// Multiplies a CPU tensor in place with a factor of one element.
void scale_by(const at::Tensor& tensor, const at::Tensor& factor);

class Staging;

// The memory of one operation's tensors. Keeps the tensors alive. Uses a contiguous copy of a tensor that is not
// contiguous in row-major order, and a copy in host memory of a tensor on an accelerator. All tensors of an
// operation are on one device.
class Tensors {
 public:
  // Later calls of read(), read_copy() and update() multiply the values with this factor.
  void scale_inputs(std::optional<at::Tensor> factor) { factor_ = std::move(factor); }

  // Memory that the operation only reads.
  ConstBytes read(const at::Tensor& tensor);
  // A copy to read from, for an input whose own memory the operation may overwrite.
  ConstBytes read_copy(const at::Tensor& tensor);
  // Memory that the operation fills; the tensor becomes one of the results.
  Bytes write(const at::Tensor& tensor, const Subject& what);
  // Memory that the operation reads and changes; the tensor becomes one of the results.
  Bytes update(const at::Tensor& tensor, const Subject& what);

  // As update(), but the tensor is none of the results. REQUIRES: it is contiguous.
  Bytes change(const at::Tensor& tensor);
  // The operation has no tensors, but waits for the calling thread's stream on this device.
  void follow(c10::Device device);

  // Keeps a tensor alive that the operation uses in another way.
  void keep(const at::Tensor& tensor) { kept_.push_back(tensor); }

  // Sets the results. `last_step` makes them after the operation.
  void finish_with(std::vector<at::Tensor> results, std::function<void()> last_step);

  // After success: copies results from copies back to their tensors, then runs the last step. Any thread.
  void copy_back();

  // In the order of the calls of write() and update(), or as given to finish_with().
  const std::vector<at::Tensor>& results() const { return results_; }
  // The copies of tensors on an accelerator; null for CPU tensors.
  const std::shared_ptr<Staging>& staging() const { return staging_; }

 private:
  // True for a tensor on an accelerator. Throws if the operation has tensors elsewhere.
  bool staged(const at::Tensor& tensor);
  at::Tensor copy_of(const at::Tensor& tensor) const;
  Bytes add_result(const at::Tensor& tensor, at::Tensor stand_in);

  std::vector<at::Tensor> kept_;
  std::vector<at::Tensor> results_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // a result and its copy
  std::optional<at::Tensor> factor_;
  std::function<void()> last_step_;
  std::shared_ptr<Staging> staging_;
};

}  // namespace braid::adapter
