// SPDX-License-Identifier: Apache-2.0
// GPUs for braid.cuda: addresses and streams are numbers here, and Python has said what is wrong with arguments before.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "python/bind.h"

namespace py = pybind11;

namespace braid {
namespace {

using cuda::Gpu;
using cuda::Stream;
using cuda::Table;

void raise_unless_ok(const Status& status) {
  if (status.ok()) return;
  if (status.code() == Code::kInvalidArgument) throw py::value_error(status.message());
  throw std::runtime_error(status.message());
}

template <class T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

const cuda::Driver& driver() {
  const auto& found = cuda::Driver::of_process();
  raise_unless_ok(found.status());
  return found.value();
}

std::tuple<int, int> capability(int ordinal) {
  const auto result = cuda::capability(driver(), ordinal);
  raise_unless_ok(result.status());
  return {result.value().major, result.value().minor};
}

std::unique_ptr<Gpu> open_gpu(int ordinal, const py::bytes& image) {
  const auto text = static_cast<std::string_view>(image);
  auto gpu = Gpu::open(driver(), ordinal, std::as_bytes(std::span(text)));
  raise_unless_ok(gpu.status());
  return std::move(gpu).value();
}

Table make_table(const std::vector<std::tuple<uintptr_t, size_t, std::string>>& tensors) {
  std::vector<cuda::DeviceRun> runs;
  for (const auto& [address, elements, name] : tensors) {
    const auto dtype = dtype_from_name(name);
    if (!dtype) throw py::value_error("there is no dtype " + name);
    runs.push_back({at<void>(address), elements, *dtype});
  }
  auto table = Table::of(runs);
  raise_unless_ok(table.status());
  return std::move(table).value();
}

py::bytes rows_of(const Table& table) {
  return {reinterpret_cast<const char*>(table.rows().data()), table.rows().size()};
}

void encode_tensors(Gpu& gpu, const Codec& codec, const Table& table, float scale, uint32_t seed,
                    uintptr_t residual, uintptr_t message, size_t message_bytes, uintptr_t scratch,
                    Stream stream) {
  const cuda::EncodeWork work{.scale = scale,
                              .seed = seed,
                              .residual = at<float>(residual),
                              .message = at<void>(message),
                              .message_bytes = message_bytes,
                              .scratch = at<void>(scratch)};
  raise_unless_ok(encode(gpu, codec, table, work, stream));
}

void decode_tensors(Gpu& gpu, const Codec& codec, uintptr_t message, size_t message_bytes, const Table& table,
                    float scale, bool add, uintptr_t flag, Stream stream) {
  const cuda::DecodeWork work{.message = at<void>(message),
                              .message_bytes = message_bytes,
                              .scale = scale,
                              .add = add,
                              .flag = at<uint32_t>(flag)};
  raise_unless_ok(decode(gpu, codec, table, work, stream));
}

}  // namespace

void bind_cuda(py::module_& m) {
  m.def(
      "cuda_devices", [] { return driver().devices(); },
      "How many devices the driver has. Raises RuntimeError where there is no driver, with the reason.");
  m.def("cuda_capability", &capability, py::arg("device"), "(major, minor)");
  m.def("cuda_scratch_bytes", &cuda::encode_scratch_bytes, py::arg("codec"), py::arg("elements"),
        py::arg("has_residual"));
  py::class_<Table>(m, "CudaTable")
      .def(py::init(&make_table), py::arg("tensors"), "Of (address, elements, name of the dtype) each.")
      .def_property_readonly("elements", &Table::elements)
      .def_property_readonly("is_long", &Table::is_long, "Its rows must be on the device before it is used.")
      .def("rows", &rows_of)
      .def(
          "set_far_rows", [](Table& table, uintptr_t address) { table.set_far_rows(at<void>(address)); },
          py::arg("address"));
  py::class_<Gpu>(m, "Gpu")
      .def(py::init(&open_gpu), py::arg("device"), py::arg("image"))
      .def_property_readonly("name", &Gpu::name)
      .def(
          "pack",
          [](Gpu& gpu, const Table& table, float scale, uintptr_t out, Stream stream) {
            raise_unless_ok(pack(gpu, table, scale, at<float>(out), stream));
          },
          py::arg("table"), py::arg("scale"), py::arg("out"), py::arg("stream"))
      .def(
          "unpack",
          [](Gpu& gpu, uintptr_t floats, const Table& table, float scale, bool add, Stream stream) {
            raise_unless_ok(unpack(gpu, at<float>(floats), table, scale, add, stream));
          },
          py::arg("floats"), py::arg("table"), py::arg("scale"), py::arg("add"), py::arg("stream"))
      .def("encode", &encode_tensors, py::arg("codec"), py::arg("table"), py::arg("scale"), py::arg("seed"),
           py::arg("residual"), py::arg("message"), py::arg("message_bytes"), py::arg("scratch"),
           py::arg("stream"))
      .def("decode", &decode_tensors, py::arg("codec"), py::arg("message"), py::arg("message_bytes"),
           py::arg("table"), py::arg("scale"), py::arg("add"), py::arg("flag"), py::arg("stream"));
}

}  // namespace braid
