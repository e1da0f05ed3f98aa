// SPDX-License-Identifier: Apache-2.0
// Buckets of arrays, for braid.Bucket.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bucket/bucket.h"
#include "interpreter/without_gil.h"
#include "python/array_communicator.h"
#include "python/array_memory.h"
#include "python/bind.h"

namespace braid {
namespace {

// A bucket, and the arrays whose memory it works on.
struct ArrayBucket {
  Bucket bucket;
  std::vector<py::array> owners;
};

ArrayBucket make_bucket(const std::vector<std::pair<py::array, std::string>>& arrays) {
  std::vector<BucketTensor> tensors;
  std::vector<py::array> owners;
  for (const auto& [array, name] : arrays) {
    const auto dtype = dtype_from_name(name);
    if (!dtype) throw py::value_error("unknown dtype \"" + name + "\"");
    const Bytes bytes = bytes_of(array, false);
    tensors.push_back({bytes.data(), bytes.size() / size_of(*dtype), *dtype});
    owners.push_back(array);
  }
  auto bucket = Bucket::create(std::move(tensors));
  raise_if_failed(bucket.status());
  return {std::move(bucket).value(), std::move(owners)};
}

// Lets other Python threads run meanwhile.
template <class Call>
void carry_out(const Call& call) {
  const Status status = [&] {
    const WithoutGil without_gil;
    return call();
  }();
  raise_if_failed(status);
}

void check_writable(const ArrayBucket& self) {
  for (const py::array& owner : self.owners) {
    if (!owner.writeable()) throw py::value_error("expected arrays that may be written");
  }
}

void pack(const ArrayBucket& self, size_t begin, size_t end, float scale, const py::array& out) {
  const std::span<float> floats = floats_of(out, true);
  carry_out([&] { return self.bucket.pack({begin, end}, scale, floats); });
}

void unpack(const ArrayBucket& self, const py::array& flat, size_t begin, size_t end, float scale) {
  check_writable(self);
  const std::span<const float> floats = floats_of(flat, false);
  carry_out([&] { return self.bucket.unpack(floats, {begin, end}, scale); });
}

void encode_bucket(const ArrayBucket& self, const Codec& codec, size_t begin, size_t end, float scale,
                   const py::object& residual, uint32_t seed, const py::array& message) {
  const std::span<float> left = floats_of(residual, true);
  const Bytes out = bytes_of(message, true);
  carry_out([&] { return self.bucket.encode(codec, {begin, end}, scale, left, seed, out); });
}

void decode_bucket(const ArrayBucket& self, const Codec& codec, const py::array& message, size_t begin, size_t end,
                   float scale) {
  check_writable(self);
  const ConstBytes from = bytes_of(message, false);
  carry_out([&] { return self.bucket.decode(codec, from, {begin, end}, scale); });
}

}  // namespace

void bind_bucket(py::module_& m) {
  py::class_<ArrayBucket>(m, "Bucket")
      .def(py::init(&make_bucket), py::arg("arrays"),
           "Of (array, name of its dtype); an array may be of any dtype with elements of that size.")
      .def("__len__", [](const ArrayBucket& self) { return self.bucket.tensors(); })
      .def_property_readonly("elements", [](const ArrayBucket& self) { return self.bucket.elements(); })
      .def("pack", &pack, py::arg("begin"), py::arg("end"), py::arg("scale"), py::arg("out"))
      .def("unpack", &unpack, py::arg("flat"), py::arg("begin"), py::arg("end"), py::arg("scale"))
      .def("encode", &encode_bucket, py::arg("codec"), py::arg("begin"), py::arg("end"), py::arg("scale"),
           py::arg("residual").none(true), py::arg("seed"), py::arg("message"))
      .def("decode", &decode_bucket, py::arg("codec"), py::arg("message"), py::arg("begin"), py::arg("end"),
           py::arg("scale"));
}

}  // namespace braid
