// SPDX-License-Identifier: Apache-2.0
#include "c10d/leg_coder.h"

#include <stdexcept>
#include <utility>

#include "c10d/python_object.h"

namespace braid::adapter {
namespace {

// Exceptions that are no errors, as Ctrl-C, go through. Others become errors of the operation, in one line.
template <class Body>
auto in_python(const Body& body) {
  const py::gil_scoped_acquire gil;
  try {
    return body();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const std::string text = error.what();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
}

void go_on(const std::shared_ptr<py::object>& generator) {
  in_python([&] { static_cast<void>(py::module_::import("builtins").attr("next")(*generator, py::none())); });
}

template <class... Arguments>
std::optional<Steps> start(const py::object& coder, const char* name, const Arguments&... arguments) {
  const auto generator = in_python([&]() -> std::shared_ptr<py::object> {
    py::object made = coder.attr(name)(arguments...);
    return made.is_none() ? nullptr : shared_object(std::move(made));
  });
  if (!generator) return std::nullopt;
  go_on(generator);
  return Steps(kMostSteps, [generator] { go_on(generator); });
}

}  // namespace

LegCoder::LegCoder(py::object coder) : coder_(shared_object(std::move(coder))) {}

std::optional<Steps> LegCoder::all_reduce(const at::Tensor& tensor, const std::string& codec,
                                          const std::optional<at::Tensor>& residual, bool averages) const {
  return start(*coder_, "all_reduce", tensor, codec, residual, averages);
}

std::optional<Steps> LegCoder::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                              const std::string& codec, const std::optional<at::Tensor>& residual,
                                              bool averages) const {
  return start(*coder_, "reduce_scatter", output, input, codec, residual, averages);
}

}  // namespace braid::adapter
