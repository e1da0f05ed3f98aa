// SPDX-License-Identifier: Apache-2.0
// Products with thin factors, for python/braid/compression/low_rank.py.
#include <pybind11/pybind11.h>

#include <string>

#include "base/dtype.h"
#include "interpreter/without_gil.h"
#include "low_rank/rounded.h"
#include "python/array_memory.h"
#include "python/bind.h"

namespace braid {
namespace {

// What a matrix of the gradient's dtype is multiplied as; everything else is float32.
struct Product {
  LowRankShape shape;
  DType dtype;

  size_t elements() const { return shape.rows * shape.columns; }
  size_t of_p() const { return shape.rows * shape.rank; }
  size_t of_q() const { return shape.columns * shape.rank; }
};

Product make_product(size_t rows, size_t columns, size_t rank, const std::string& name) {
  if (rank < 1 || rank > kMostLowRank) {
    throw py::value_error("rank is " + std::to_string(rank) + ", expected 1 to " + std::to_string(kMostLowRank));
  }
  const auto dtype = dtype_from_name(name);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    throw py::value_error("dtype is \"" + name + "\", expected float32, float16 or bfloat16");
  }
  return {{rows, columns, rank}, *dtype};
}

void check_size(size_t found, size_t elements) {
  if (found == elements) return;
  throw py::value_error("an array has " + std::to_string(found) + " elements, expected " +
                        std::to_string(elements));
}

std::span<float> floats_of_size(const py::object& array, size_t elements, bool writable) {
  const std::span<float> floats = floats_of(array, writable);
  check_size(floats.size(), elements);
  return floats;
}

// Of 16 bits, whatever NumPy takes them for: it has no bfloat16.
std::byte* narrow_of_size(const py::array& array, size_t elements, bool writable) {
  if (array.itemsize() != 2) throw py::value_error("expected an array of elements of 2 bytes");
  check_size(static_cast<size_t>(array.size()), elements);
  return memory_of_array(array, writable);
}

void check_range(size_t begin, size_t end, size_t extent) {
  if (begin > end || end > extent) {
    throw py::value_error(std::to_string(begin) + " to " + std::to_string(end) + " is no range of " +
                          std::to_string(extent));
  }
}

void project_rows(const Product& self, const py::array& gradient, const py::array& matrix, const py::object& sent,
                  const py::array& q, const py::array& p, size_t begin, size_t end) {
  const bool is_wide = self.dtype == DType::kFloat32;
  const float* const wide = is_wide ? floats_of_size(gradient, self.elements(), false).data() : nullptr;
  const std::byte* const narrow = is_wide ? nullptr : narrow_of_size(gradient, self.elements(), false);
  const std::span<float> into = floats_of_size(matrix, self.elements(), true);
  const float* const sent_p = sent.is_none() ? nullptr : floats_of_size(sent, self.of_p(), false).data();
  const std::span<float> components = floats_of_size(q, self.of_q(), false);
  const std::span<float> out = floats_of_size(p, self.of_p(), true);
  check_range(begin, end, self.shape.rows);
  const WithoutGil without_gil;
  if (is_wide) {
    low_rank_project(self.shape, wide, into.data(), sent_p, components.data(), {begin, end}, out.data());
  } else {
    low_rank_project_rounded(self.dtype, self.shape, narrow, into.data(), sent_p, components.data(), {begin, end},
                             out.data());
  }
}

void gather_columns(const Product& self, const py::array& matrix, const py::array& p, const py::array& q,
                    size_t begin, size_t end) {
  const std::span<float> from = floats_of_size(matrix, self.elements(), false);
  const std::span<float> components = floats_of_size(p, self.of_p(), false);
  const std::span<float> out = floats_of_size(q, self.of_q(), true);
  check_range(begin, end, self.shape.columns);
  const WithoutGil without_gil;
  low_rank_gather(self.shape, from.data(), components.data(), {begin, end}, out.data());
}

void rebuild_rows(const Product& self, const py::array& p, const py::array& q, const py::array& product,
                  size_t begin, size_t end) {
  const bool is_wide = self.dtype == DType::kFloat32;
  const std::span<float> by_rows = floats_of_size(p, self.of_p(), false);
  const std::span<float> by_columns = floats_of_size(q, self.of_q(), false);
  float* const wide = is_wide ? floats_of_size(product, self.elements(), true).data() : nullptr;
  std::byte* const narrow = is_wide ? nullptr : narrow_of_size(product, self.elements(), true);
  check_range(begin, end, self.shape.rows);
  const WithoutGil without_gil;
  if (is_wide) {
    low_rank_rebuild(self.shape, by_rows.data(), by_columns.data(), {begin, end}, wide);
  } else {
    low_rank_rebuild_rounded(self.dtype, self.shape, by_rows.data(), by_columns.data(), {begin, end}, narrow);
  }
}

void settle_rows(const Product& self, const py::array& p, const py::array& q, const py::array& matrix,
                 size_t begin, size_t end) {
  const std::span<float> by_rows = floats_of_size(p, self.of_p(), false);
  const std::span<float> by_columns = floats_of_size(q, self.of_q(), false);
  const std::span<float> out = floats_of_size(matrix, self.elements(), true);
  check_range(begin, end, self.shape.rows);
  const WithoutGil without_gil;
  if (self.dtype == DType::kFloat32) {
    low_rank_settle(self.shape, by_rows.data(), by_columns.data(), {begin, end}, out.data());
  } else {
    low_rank_settle_rounded(self.dtype, self.shape, by_rows.data(), by_columns.data(), {begin, end}, out.data());
  }
}

bool make_orthonormal(const Product& self, const py::array& p) {
  const std::span<float> components = floats_of_size(p, self.of_p(), true);
  const WithoutGil without_gil;
  return orthonormalize(components, self.shape.rows);
}

}  // namespace

void bind_low_rank(py::module_& m) {
  const auto begin = py::arg("begin"), end = py::arg("end");
  py::class_<Product>(m, "LowRank", "csrc/low_rank/low_rank.h. Arrays must not overlap.")
      .def(py::init(&make_product), py::arg("rows"), py::arg("columns"), py::arg("rank"),
           py::arg("dtype") = "float32")
      .def("project", &project_rows, py::arg("gradient"), py::arg("matrix"), py::arg("sent").none(true),
           py::arg("q"), py::arg("p"), begin, end)
      .def("gather", &gather_columns, py::arg("matrix"), py::arg("p"), py::arg("q"), begin, end)
      .def("rebuild", &rebuild_rows, py::arg("p"), py::arg("q"), py::arg("product"), begin, end)
      .def("settle", &settle_rows, py::arg("p"), py::arg("q"), py::arg("matrix"), begin, end)
      .def("orthonormalize", &make_orthonormal, py::arg("p"));
  m.def(
      "draw_uniform", [](uint64_t seed, const py::array& out) { draw_uniform(seed, floats_of(out, true)); },
      py::arg("seed"), py::arg("out"));
}

}  // namespace braid
