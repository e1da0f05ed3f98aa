// SPDX-License-Identifier: Apache-2.0
#include "python/plain_call.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace braid {
namespace {

// NumPy numbers its own element types from 0, and those that packages add, as ml_dtypes does, from 256.
constexpr int kTypeNumbers = 320;
constexpr int8_t kNotAsked = -2, kNotCarried = -1;

// As dtype_name() in python/braid/_array/arrays.py: what counts is NumPy's name of the dtype. In native byte order that
// depends on the type's number alone, or else (as with strings) is no name of the core's.
std::optional<DType> dtype_of(const py::dtype& dtype) {
  static auto known = [] {  // guarded by the GIL
    std::array<int8_t, kTypeNumbers> all;
    all.fill(kNotAsked);
    return all;
  }();
  const int number = dtype.num();
  const char order = dtype.byteorder();
  if (number < 0 || number >= kTypeNumbers || (order != '=' && order != '|')) return std::nullopt;
  int8_t& found = known[static_cast<size_t>(number)];
  if (found == kNotAsked) {
    const auto named = dtype_from_name(std::string(py::str(dtype)));
    found = named ? static_cast<int8_t>(*named) : kNotCarried;
  }
  if (found == kNotCarried) return std::nullopt;
  return static_cast<DType>(found);
}

// Whether the core can use the memory of the array as it is. False of anything but an array.
bool is_plain(PyObject* given, bool writable) {
  // Not kept in a static: the first call imports NumPy, and who waits for a static to be made does not let go of the
  // GIL that the import needs.
  if (given == nullptr || Py_TYPE(given) != py::detail::npy_api::get().PyArray_Type_) return false;
  const int needed = py::array::c_style | (writable ? py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : 0);
  return py::detail::check_flags(given, needed);
}

std::optional<Node> plain_root(PyObject* given, int ranks) {
  if (given == nullptr || !PyLong_CheckExact(given)) return std::nullopt;
  int overflow = 0;
  const long root = PyLong_AsLongAndOverflow(given, &overflow);
  if (overflow != 0 || root < 0 || root >= ranks) return std::nullopt;
  return static_cast<Node>(root);
}

std::optional<ReduceOp> plain_op(PyObject* given) {
  if (given == nullptr || !PyUnicode_CheckExact(given)) return std::nullopt;
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(given, &length);
  if (name == nullptr) {  // a lone surrogate
    PyErr_Clear();
    return std::nullopt;
  }
  return reduce_op_from_name({name, static_cast<size_t>(length)});
}

template <class Memory>
std::vector<Memory> blocks(const py::array& array, size_t count, size_t bytes) {
  std::vector<Memory> all;
  all.reserve(count);
  auto* memory = static_cast<std::byte*>(const_cast<void*>(array.data()));
  for (size_t i = 0; i < count; ++i) all.emplace_back(memory + i * bytes, bytes);
  return all;
}

bool same_shape(const py::array& a, const py::array& b) {
  return std::equal(a.shape(), a.shape() + a.ndim(), b.shape(), b.shape() + b.ndim());
}

}  // namespace

py::object run_if_plain(const ArrayCommunicator& communicator, CollectiveKind kind, const Arguments& given) {
  const py::object not_plain;
  if (kind == CollectiveKind::kBarrier) {
    communicator.run(Operation{}, {}, {});
    return py::none();
  }
  const auto root = has_root(kind) ? plain_root(given.root, communicator.ranks()) : 0;
  const auto op = is_reduction(kind) ? plain_op(given.op) : ReduceOp::kSum;
  if (!root || !op) return not_plain;

  // In how many blocks each array comes: one for the vector of a vector collective, none where there is no array.
  const Collective collective{kind, communicator.ranks(), *root};
  const int chunks = is_vector(kind) ? 1 : communicator.ranks();
  const auto ins = static_cast<size_t>(input_chunks(collective, chunks, communicator.rank()));
  const auto outs = static_cast<size_t>(output_chunks(collective, chunks, communicator.rank()));
  const bool in_place = is_vector(kind) && (given.out == nullptr || given.out == Py_None);
  PyObject* const target = in_place ? given.x : given.out;
  if (ins > 0 && !is_plain(given.x, false)) return not_plain;
  if (outs > 0 && !is_plain(target, true)) return not_plain;

  // These hold the arrays while the operation runs. The other array stands in for one that there is not.
  const auto in = py::reinterpret_borrow<py::array>(ins > 0 ? given.x : target);
  const auto out = py::reinterpret_borrow<py::array>(outs > 0 ? target : given.x);
  const auto dtype = dtype_of(in.dtype());
  if (!dtype || dtype_of(out.dtype()) != dtype || in.dtype().num() != out.dtype().num()) return not_plain;
  if (is_vector(kind) && !same_shape(in, out)) return not_plain;
  const auto in_size = static_cast<size_t>(in.size()), out_size = static_cast<size_t>(out.size());
  const size_t elements = ins > 0 ? in_size / ins : out_size / outs;
  if ((ins > 0 && elements * ins != in_size) || (outs > 0 && elements * outs != out_size)) return not_plain;

  const size_t bytes = elements * size_of(*dtype);
  communicator.run({kind, *dtype, *op, *root, blocks<ConstBytes>(in, ins, bytes), blocks<Bytes>(out, outs, bytes)},
                   in, out);
  return outs > 0 ? py::reinterpret_borrow<py::object>(target) : py::none();
}

}  // namespace braid
