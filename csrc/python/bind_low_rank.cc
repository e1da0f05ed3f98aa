// SPDX-License-Identifier: Apache-2.0
// Products with thin factors, for python/braid/compression/low_rank.py.
#include <pybind11/pybind11.h>

#include <string>

#include "low_rank/low_rank.h"
#include "python/array_memory.h"
#include "python/bind.h"

namespace braid {
namespace {

LowRankShape make_shape(size_t rows, size_t columns, size_t rank) {
  if (rank < 1 || rank > kMostLowRank) {
    throw py::value_error("rank is " + std::to_string(rank) + ", expected 1 to " + std::to_string(kMostLowRank));
  }
  return {rows, columns, rank};
}

std::span<float> floats_of_size(const py::object& array, size_t elements, bool writable) {
  const std::span<float> floats = floats_of(array, writable);
  if (floats.size() != elements) {
    throw py::value_error("an array has " + std::to_string(floats.size()) + " elements, expected " +
                          std::to_string(elements));
  }
  return floats;
}

void check_range(size_t begin, size_t end, size_t extent) {
  if (begin > end || end > extent) {
    throw py::value_error(std::to_string(begin) + " to " + std::to_string(end) + " is no range of " +
                          std::to_string(extent));
  }
}

void project_rows(const LowRankShape& shape, const py::array& gradient, const py::array& matrix,
                  const py::object& sent, const py::array& q, const py::array& p, size_t begin, size_t end) {
  const size_t elements = shape.rows * shape.columns, of_p = shape.rows * shape.rank;
  const std::span<float> from = floats_of_size(gradient, elements, false);
  const std::span<float> into = floats_of_size(matrix, elements, true);
  const float* const sent_p = sent.is_none() ? nullptr : floats_of_size(sent, of_p, false).data();
  const std::span<float> components = floats_of_size(q, shape.columns * shape.rank, false);
  const std::span<float> out = floats_of_size(p, of_p, true);
  check_range(begin, end, shape.rows);
  const py::gil_scoped_release release;
  low_rank_project(shape, from.data(), into.data(), sent_p, components.data(), {begin, end}, out.data());
}

void gather_columns(const LowRankShape& shape, const py::array& matrix, const py::array& p, const py::array& q,
                    size_t begin, size_t end) {
  const std::span<float> from = floats_of_size(matrix, shape.rows * shape.columns, false);
  const std::span<float> components = floats_of_size(p, shape.rows * shape.rank, false);
  const std::span<float> out = floats_of_size(q, shape.columns * shape.rank, true);
  check_range(begin, end, shape.columns);
  const py::gil_scoped_release release;
  low_rank_gather(shape, from.data(), components.data(), {begin, end}, out.data());
}

template <auto kCall>
void for_rows(const LowRankShape& shape, const py::array& p, const py::array& q, const py::array& matrix,
              size_t begin, size_t end) {
  const std::span<float> by_rows = floats_of_size(p, shape.rows * shape.rank, false);
  const std::span<float> by_columns = floats_of_size(q, shape.columns * shape.rank, false);
  const std::span<float> out = floats_of_size(matrix, shape.rows * shape.columns, true);
  check_range(begin, end, shape.rows);
  const py::gil_scoped_release release;
  kCall(shape, by_rows.data(), by_columns.data(), {begin, end}, out.data());
}

bool make_orthonormal(const LowRankShape& shape, const py::array& p) {
  const std::span<float> components = floats_of_size(p, shape.rows * shape.rank, true);
  const py::gil_scoped_release release;
  return orthonormalize(components, shape.rows);
}

}  // namespace

void bind_low_rank(py::module_& m) {
  const auto begin = py::arg("begin"), end = py::arg("end");
  py::class_<LowRankShape>(m, "LowRank", "csrc/low_rank/low_rank.h. Arrays must not overlap.")
      .def(py::init(&make_shape), py::arg("rows"), py::arg("columns"), py::arg("rank"))
      .def("project", &project_rows, py::arg("gradient"), py::arg("matrix"), py::arg("sent").none(true),
           py::arg("q"), py::arg("p"), begin, end)
      .def("gather", &gather_columns, py::arg("matrix"), py::arg("p"), py::arg("q"), begin, end)
      .def("rebuild", &for_rows<&low_rank_rebuild>, py::arg("p"), py::arg("q"), py::arg("product"), begin, end)
      .def("settle", &for_rows<&low_rank_settle>, py::arg("p"), py::arg("q"), py::arg("matrix"), begin, end)
      .def("orthonormalize", &make_orthonormal, py::arg("p"));
  m.def(
      "draw_uniform", [](uint64_t seed, const py::array& out) { draw_uniform(seed, floats_of(out, true)); },
      py::arg("seed"), py::arg("out"));
}

}  // namespace braid
