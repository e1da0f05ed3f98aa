// SPDX-License-Identifier: Apache-2.0
// The memory of NumPy arrays as the functions on floats and messages take it. The Python classes have said what is wrong
// with an argument before; what is checked here keeps memory safe.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <span>

#include "base/span.h"

namespace braid {

namespace py = pybind11;

inline std::byte* memory_of_array(const py::array& array, bool writable) {
  if ((array.flags() & py::array::c_style) == 0) throw py::value_error("expected a C-contiguous array");
  if (writable && !array.writeable()) throw py::value_error("expected an array that may be written");
  return static_cast<std::byte*>(const_cast<void*>(array.data()));
}

// Of a float32 array, aligned as such; empty for None.
inline std::span<float> floats_of(const py::object& given, bool writable) {
  if (given.is_none()) return {};
  const auto array = py::cast<py::array>(given);
  std::byte* const memory = memory_of_array(array, writable);
  if (!py::isinstance<py::array_t<float>>(array) || reinterpret_cast<uintptr_t>(memory) % alignof(float) != 0) {
    throw py::value_error("expected an aligned array of float32");
  }
  return {reinterpret_cast<float*>(memory), static_cast<size_t>(array.size())};
}

inline Bytes bytes_of(const py::array& array, bool writable) {
  return {memory_of_array(array, writable), static_cast<size_t>(array.nbytes())};
}

}  // namespace braid
