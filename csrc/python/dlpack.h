// SPDX-License-Identifier: Apache-2.0
// A tensor that another library hands over as DLPack does. The structures are those of DLPack's ABI, 0.8 and 1.x.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace braid {

namespace py = pybind11;

namespace dlpack {

struct Tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null where the memory is C-contiguous
  uint64_t byte_offset;
};
struct Versioned {
  uint32_t major, minor;
  void* owner;
  void (*end)(Versioned*);
  uint64_t flags;
  Tensor tensor;
};
inline constexpr uint64_t kReadOnly = 1;
inline constexpr int32_t kCpu = 1, kCudaHost = 3;

}  // namespace dlpack

// Holds the capsule, which keeps the memory alive, but does not take its tensor over: the capsule ends it.
class DlpackTensor {
 public:
  explicit DlpackTensor(py::capsule capsule) : capsule_(std::move(capsule)) {
    const char* const name = capsule_.name();
    if (name != nullptr && std::strcmp(name, "dltensor_versioned") == 0) {
      const auto* const versioned = capsule_.get_pointer<dlpack::Versioned>();
      if (versioned->major != 1) throw py::value_error("a DLPack tensor of a version that braid does not know");
      tensor_ = &versioned->tensor;
      read_only_ = (versioned->flags & dlpack::kReadOnly) != 0;
    } else if (name != nullptr && std::strcmp(name, "dltensor") == 0) {
      tensor_ = capsule_.get_pointer<dlpack::Tensor>();  // the first field
    } else {
      throw py::value_error("not a fresh DLPack tensor");
    }
  }

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(tensor_->data) + tensor_->byte_offset; }
  std::vector<int64_t> shape() const { return {tensor_->shape, tensor_->shape + tensor_->dimensions}; }
  std::optional<std::vector<int64_t>> strides() const {
    if (tensor_->strides == nullptr) return std::nullopt;
    return std::vector<int64_t>{tensor_->strides, tensor_->strides + tensor_->dimensions};
  }
  std::tuple<int, int, int> dtype() const { return {tensor_->code, tensor_->bits, tensor_->lanes}; }
  std::pair<int, int> device() const { return {tensor_->device_type, tensor_->device_id}; }
  bool read_only() const { return read_only_; }

  py::array array(const py::dtype& dtype) const {
    if (tensor_->device_type != dlpack::kCpu && tensor_->device_type != dlpack::kCudaHost) {
      throw py::value_error("the tensor is not in memory of the host");
    }
    if (dtype.itemsize() * 8 != py::ssize_t{tensor_->bits} * tensor_->lanes) {
      throw py::value_error("the tensor's elements have another size");
    }
    std::vector<py::ssize_t> steps;
    if (const auto given = strides()) {
      for (const int64_t elements : *given) steps.push_back(elements * dtype.itemsize());
    }
    py::array made(dtype, shape(), steps, reinterpret_cast<void*>(address()), capsule_);
    if (read_only_) py::detail::array_proxy(made.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    return made;
  }

 private:
  py::capsule capsule_;
  const dlpack::Tensor* tensor_ = nullptr;
  bool read_only_ = false;
};

}  // namespace braid
