// SPDX-License-Identifier: Apache-2.0
// Tensors as plain memory: what braid can take, as which element type, and where the bytes lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"

namespace braid::adapter {

// What an error message is about: "all_gather: output 2". Made on every call, spelled out only on failure.
struct Subject {
  const char* operation = "";
  const char* part = "tensor";
  int64_t index = -1;
};
std::ostream& operator<<(std::ostream& out, const Subject& subject);

// Each check throws the c10 error that Python shows as ValueError, TypeError or NotImplementedError.

// A dense tensor in host memory.
void check_tensor(const at::Tensor& tensor, const Subject& what);
void check_same_dtype(const at::Tensor& tensor, const at::Tensor& like, const Subject& what);
void check_same_shape(const at::Tensor& tensor, const at::Tensor& like, const Subject& what);

// The element type under which an operation that only moves data carries the tensor. Types that braid does not
// know travel as bytes.
DType dtype_to_move(const at::Tensor& tensor);
// The element type in which the tensor is reduced; the operator is defined for it.
DType dtype_to_reduce(const at::Tensor& tensor, ReduceOp op, const Subject& what);
ReduceOp reduce_op_of(const ::c10d::ReduceOp& op, const Subject& what);
// What PREMUL_SUM multiplies this rank's input with: a tensor of one element. None for the other operators.
std::optional<at::Tensor> factor_of(const ::c10d::ReduceOp& op, const at::Tensor& tensor, const Subject& what);

bool overlap(ConstBytes a, ConstBytes b);

// The memory of one operation's tensors. Keeps them alive, and puts a contiguous copy in the place of a tensor
// that does not lie in one piece in row-major order.
class Tensors {
 public:
  // From now on inputs are multiplied with this before the operation sees them.
  void scale_inputs(std::optional<at::Tensor> factor) { factor_ = std::move(factor); }

  // Memory that the operation only reads.
  ConstBytes read(const at::Tensor& tensor);
  // A copy to read from: for an input whose own memory the operation may overwrite.
  ConstBytes read_copy(const at::Tensor& tensor);
  // Memory that the operation fills; the tensor becomes one of the results.
  Bytes write(const at::Tensor& tensor, const Subject& what);
  // Memory that the operation reads and changes; the tensor becomes one of the results.
  Bytes update(const at::Tensor& tensor, const Subject& what);

  // Keeps a tensor alive that the operation uses otherwise.
  void keep(const at::Tensor& tensor) { kept_.push_back(tensor); }

  // The results are these, and come about by a last step after the operation.
  void finish_with(std::vector<at::Tensor> results, std::function<void()> last_step);

  // After success: brings what was written to copies home. Any thread.
  void copy_back();

  // In the order in which they were given to write() and update().
  const std::vector<at::Tensor>& results() const { return results_; }

 private:
  at::Tensor copy_of(const at::Tensor& tensor) const;
  Bytes add_result(const at::Tensor& tensor, at::Tensor stand_in);

  std::vector<at::Tensor> kept_;
  std::vector<at::Tensor> results_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // a result and what stands in for it
  std::optional<at::Tensor> factor_;
  std::function<void()> last_step_;
};

}  // namespace braid::adapter
