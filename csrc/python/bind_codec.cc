// SPDX-License-Identifier: Apache-2.0
// The codecs, for braid.Codec.
#include <pybind11/pybind11.h>

#include <string>

#include "codec/codec.h"
#include "interpreter/without_gil.h"
#include "python/array_communicator.h"
#include "python/array_memory.h"
#include "python/bind.h"

namespace braid {
namespace {

Codec make_codec(const std::string& text) {
  const auto codec = codec_from_text(text);
  raise_if_failed(codec.status());
  return codec.value();
}

size_t bytes_for(const Codec& codec, size_t elements) {
  if (elements > kMostEncodedElements) {
    throw py::value_error(std::to_string(elements) + " elements are more than one message takes, " +
                          std::to_string(kMostEncodedElements));
  }
  return encoded_bytes(codec, elements);
}

void encode_array(const Codec& codec, const py::array& values, const py::object& residual, float scale,
                  uint32_t seed, const py::array& message) {
  const std::span<const float> from = floats_of(values, false);
  const std::span<float> left = floats_of(residual, true);
  const Bytes out = bytes_of(message, true);
  if (!residual.is_none() && left.size() != from.size()) {
    throw py::value_error("values and residual have different lengths");
  }
  if (out.size() != bytes_for(codec, from.size())) throw py::value_error("the message has the wrong length");
  const WithoutGil without_gil;
  encode(codec, from.data(), from.size(), scale, residual.is_none() ? nullptr : left.data(), seed, out);
}

template <Status (*kDecode)(const Codec&, ConstBytes, float*, size_t)>
void decode_array(const Codec& codec, const py::array& message, const py::array& into) {
  const std::span<float> floats = floats_of(into, true);
  const ConstBytes from = bytes_of(message, false);
  bytes_for(codec, floats.size());
  const Status status = [&] {
    const WithoutGil without_gil;
    return kDecode(codec, from, floats.data(), floats.size());
  }();
  raise_if_failed(status);
}

}  // namespace

void bind_codec(py::module_& m) {
  const auto trait = [](auto member) {
    return [member](const Codec& codec) { return traits(codec.kind).*member; };
  };
  py::class_<Codec>(m, "Codec")
      .def(py::init(&make_codec), py::arg("text"))
      .def("__str__", [](const Codec& codec) { return to_text(codec); })
      .def_property_readonly("name", [](const Codec& codec) { return std::string(traits(codec.kind).name); })
      .def_property_readonly("is_sparse", trait(&CodecTraits::is_sparse))
      .def_property_readonly("is_unbiased", trait(&CodecTraits::is_unbiased))
      .def_property_readonly("is_linear", trait(&CodecTraits::is_linear))
      .def_property_readonly("block_elements", trait(&CodecTraits::block_elements))
      .def_property_readonly("error_bound", trait(&CodecTraits::error_bound))
      .def_property_readonly("ratio", [](const Codec& codec) { return ratio(codec); })
      .def("encoded_bytes", &bytes_for, py::arg("elements"))
      .def("encode", &encode_array, py::arg("values"), py::arg("residual").none(true), py::arg("scale"),
           py::arg("seed"), py::arg("message"), "csrc/codec/codec.h. Arrays must not overlap.")
      .def("decode", &decode_array<decode>, py::arg("message"), py::arg("out"))
      .def("decode_add", &decode_array<decode_add>, py::arg("message"), py::arg("into"));
}

}  // namespace braid
