// SPDX-License-Identifier: Apache-2.0
#include "c10d/tensors.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "c10d/device.h"
#include "c10d/staging.h"

namespace braid::adapter {
namespace {

using PremulSupplement = ::c10d::NCCLPreMulSumSupplement;  // the older name, which all torch versions have

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::kFloat64;
    case at::kFloat: return DType::kFloat32;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kChar: return DType::kInt8;
    case at::kShort: return DType::kInt16;
    case at::kInt: return DType::kInt32;
    case at::kLong: return DType::kInt64;
    case at::kByte: return DType::kUInt8;
    case at::kUInt16: return DType::kUInt16;
    case at::kUInt32: return DType::kUInt32;
    case at::kUInt64: return DType::kUInt64;
    case at::kBool: return DType::kBool;
    case at::kFloat8_e4m3fn: return DType::kFloat8E4M3Fn;
    case at::kFloat8_e5m2: return DType::kFloat8E5M2;
    case at::kComplexFloat: return DType::kComplex64;
    case at::kComplexDouble: return DType::kComplex128;
    default: return std::nullopt;
  }
}

void check_writable(const at::Tensor& tensor, const Subject& what) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "braid ", what,
                    " is written to, but several of its elements share memory (an expanded view); pass a clone()");
}

ConstBytes const_bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  out << subject.operation << ": " << subject.part;
  return subject.index < 0 ? out : out << ' ' << subject.index;
}

void check_tensor(const at::Tensor& tensor, const Subject& what) {
  TORCH_CHECK_TYPE(tensor.defined(), "braid ", what, " is no tensor");
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided && !tensor.is_nested(), "braid ", what,
                   " must be a dense tensor, but its layout is ", tensor.is_nested() ? "nested" : "",
                   tensor.is_nested() ? "" : c10::str(tensor.layout()),
                   "; convert it, with to_dense() for instance");
  if (tensor.is_cpu()) return;
  TORCH_CHECK_TYPE(
      !tensor.is_meta(), "braid ", what,
      " is on device meta, where tensors have no data; materialize it first, with to_empty(device=\"cpu\") "
      "for a module");
  const std::string why = why_no_path(tensor.device());
  TORCH_CHECK_TYPE(why.empty(), "braid ", what, " is on device ", tensor.device(),
                   ", which this backend has no path for (", why,
                   "); pass tensor.cpu(), or name a backend for "
                   "that device: init_process_group(\"cpu:braid,cuda:nccl\")");
}

void check_same_dtype(const at::Tensor& tensor, const at::Tensor& like, const Subject& what) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), "braid ", what, " has dtype ", tensor.scalar_type(),
                   ", expected ", like.scalar_type());
}

void check_same_shape(const at::Tensor& tensor, const at::Tensor& like, const Subject& what) {
  TORCH_CHECK_VALUE(tensor.sizes() == like.sizes(), "braid ", what, " has shape ", tensor.sizes(), ", expected ",
                    like.sizes());
}

DType dtype_to_move(const at::Tensor& tensor) { return dtype_of(tensor.scalar_type()).value_or(DType::kUInt8); }

DType dtype_to_reduce(const at::Tensor& tensor, ReduceOp op, const Subject& what) {
  const at::ScalarType type = tensor.scalar_type();
  const auto dtype = dtype_of(type);
  TORCH_CHECK_TYPE(
      dtype.has_value(), "braid ", what, " has dtype ", type,
      ", which braid moves but cannot reduce; convert it to one of float64, float32, float16, bfloat16, "
      "float8_e4m3fn, float8_e5m2, the signed and unsigned integers, bool, complex64 and complex128");
  TORCH_CHECK_VALUE(is_defined(*dtype, op), "braid ", what, ": ", undefined_text(*dtype, op));
  return *dtype;
}

ReduceOp reduce_op_of(const ::c10d::ReduceOp& op, const Subject& what) {
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM: return ReduceOp::kSum;
    case ::c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case ::c10d::ReduceOp::PRODUCT: return ReduceOp::kProduct;
    case ::c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case ::c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case ::c10d::ReduceOp::BAND: return ReduceOp::kBand;
    case ::c10d::ReduceOp::BOR: return ReduceOp::kBor;
    case ::c10d::ReduceOp::BXOR: return ReduceOp::kBxor;
    case ::c10d::ReduceOp::PREMUL_SUM: return ReduceOp::kSum;  // a sum of scaled inputs: factor_of()
    default: TORCH_CHECK_VALUE(false, "braid ", what, ": unknown ReduceOp ", static_cast<int>(op.op_));
  }
}

std::optional<at::Tensor> factor_of(const ::c10d::ReduceOp& op, const at::Tensor& tensor, const Subject& what) {
  if (op.op_ != ::c10d::ReduceOp::PREMUL_SUM) return std::nullopt;
  TORCH_CHECK_TYPE(tensor.is_floating_point() || tensor.is_complex(), "braid ", what, " has dtype ",
                   tensor.scalar_type(), ", but PREMUL_SUM needs a floating-point or complex one");
  TORCH_CHECK_VALUE(op.supplement_, "braid ", what, ": PREMUL_SUM without a factor; make it with ",
                    "torch.distributed._make_nccl_premul_sum(factor)");
  const auto& premul = static_cast<const PremulSupplement&>(*op.supplement_);
  if (!premul.tensor_factor.defined()) return at::scalar_tensor(premul.double_factor, at::kDouble);
  const at::Tensor& factor = premul.tensor_factor;
  TORCH_CHECK_VALUE((factor.is_cpu() || factor.device() == tensor.device()) && factor.numel() == 1, "braid ", what,
                    ": the factor of PREMUL_SUM must be a tensor of one element, on the CPU or on the device of ",
                    "the tensor");
  return premul.tensor_factor.reshape({});
}

// The memory from the first to the last element of a tensor.
ConstBytes extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  size_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += static_cast<size_t>((tensor.size(i) - 1) * tensor.stride(i));
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), (last + 1) * tensor.element_size()};
}

bool overlap(ConstBytes a, ConstBytes b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

bool in_one_piece(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

void scale_by(const at::Tensor& tensor, const at::Tensor& factor) {
  // torch has no arithmetic on 8-bit floats.
  tensor.copy_(tensor.element_size() == 1 ? tensor.to(at::kFloat) * factor : tensor * factor);
}

bool Tensors::staged(const at::Tensor& tensor) {
  if (tensor.is_cpu() && !staging_) return false;
  const bool first = !staging_ && kept_.empty() && results_.empty();
  const c10::Device device = staging_ ? staging_->device() : first ? with_index(tensor.device()) : at::kCPU;
  TORCH_CHECK_VALUE(tensor.device() == device, "braid: one operation got tensors on ", device, " and on ",
                    tensor.device(), "; move them all to one device");
  if (first) follow(device);
  if (factor_) staging_->scale_inputs(*std::exchange(factor_, std::nullopt));
  return true;
}

void Tensors::follow(c10::Device device) { staging_ = Staging::make(device); }

at::Tensor Tensors::copy_of(const at::Tensor& tensor) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor copy = tensor.new_empty(tensor.sizes());
  copy.copy_(tensor);
  if (factor_) scale_by(copy, *factor_);
  return copy;
}

ConstBytes Tensors::read(const at::Tensor& tensor) {
  if (staged(tensor)) return staging_->read(tensor);
  if (factor_ || !in_one_piece(tensor)) return read_copy(tensor);
  kept_.push_back(tensor);
  return const_bytes_of(tensor);
}

ConstBytes Tensors::read_copy(const at::Tensor& tensor) {
  if (staged(tensor)) return staging_->read(tensor);
  kept_.push_back(copy_of(tensor));
  return const_bytes_of(kept_.back());
}

Bytes Tensors::write(const at::Tensor& tensor, const Subject& what) {
  check_writable(tensor, what);
  if (staged(tensor)) {
    results_.push_back(tensor);
    return staging_->write(tensor);
  }
  return add_result(tensor, in_one_piece(tensor) ? tensor : tensor.new_empty(tensor.sizes()));
}

Bytes Tensors::update(const at::Tensor& tensor, const Subject& what) {
  check_writable(tensor, what);
  if (staged(tensor)) {
    results_.push_back(tensor);
    return staging_->update(tensor);
  }
  return add_result(tensor, !factor_ && in_one_piece(tensor) ? tensor : copy_of(tensor));
}

Bytes Tensors::change(const at::Tensor& tensor) {
  if (staged(tensor)) return staging_->change(tensor);
  kept_.push_back(tensor);
  return bytes_of(tensor);
}

Bytes Tensors::add_result(const at::Tensor& tensor, at::Tensor stand_in) {
  results_.push_back(tensor);
  const Bytes bytes = bytes_of(stand_in);
  if (!stand_in.is_same(tensor)) copies_.emplace_back(tensor, std::move(stand_in));
  return bytes;
}

void Tensors::finish_with(std::vector<at::Tensor> results, std::function<void()> last_step) {
  results_ = std::move(results);
  last_step_ = std::move(last_step);
}

void Tensors::copy_back() {
  if (copies_.empty() && !last_step_) return;
  // The thread that finishes the operation does not have the user's autograd graph, grad mode or inference mode.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (auto& [result, copy] : copies_) result.copy_(copy);
  if (last_step_) last_step_();
}

}  // namespace braid::adapter
