// SPDX-License-Identifier: Apache-2.0
// braid._core.quick, a decorator of the blocking methods of braid._array.collectives: calls with plain arguments are
// carried out before Python is run, all others are the method's. The method's name is the collective; parameters and
// defaults are read off it, so that they are written down once.
//
// A type in plain C, as pybind11 makes none that Python calls without a bound method, and that can hand a call on as
// it came.
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/array_communicator.h"
#include "python/bind.h"
#include "python/plain_call.h"

namespace braid {
namespace {

struct Parameter {
  py::str name;  // interned, as a call's keywords are: the same text is the same object
  PyObject* Arguments::* meaning;
};

struct Method {
  CollectiveKind kind;
  py::function function;
  std::vector<Parameter> parameters;  // those that may be given by position, without self
  py::object defaults;                // owns what is left_out
  Arguments left_out;
};

struct QuickMethod {
  PyObject ob_base;
  vectorcallfunc call;
  PyObject* attributes;  // its __dict__: __wrapped__, __doc__ and so on, for inspect and help()
  Method* method;
};

PyObject* Arguments::* meaning_of(const std::string& parameter) {
  if (parameter == "x") return &Arguments::x;
  if (parameter == "op") return &Arguments::op;
  if (parameter == "root") return &Arguments::root;
  if (parameter == "out") return &Arguments::out;
  throw py::value_error("no collective has a parameter \"" + parameter + "\"");
}

std::unique_ptr<Method> read(py::function function) {
  const auto name = function.attr("__name__").cast<std::string>();
  const auto kind = collective_from_name(name);
  if (!kind) throw py::value_error("no collective is called \"" + name + "\"");
  auto method = std::make_unique<Method>(Method{*kind, function, {}, function.attr("__defaults__"), {}});
  const py::object code = function.attr("__code__");
  const py::tuple names = code.attr("co_varnames");
  for (size_t i = 1; i < code.attr("co_argcount").cast<size_t>(); ++i) {
    method->parameters.push_back({names[i], meaning_of(names[i].cast<std::string>())});
  }
  const py::tuple defaults = method->defaults.is_none() ? py::tuple(0) : py::tuple(method->defaults);
  const size_t required = method->parameters.size() - defaults.size();
  for (size_t i = 0; i < defaults.size(); ++i) {
    method->left_out.*method->parameters[required + i].meaning = py::handle(defaults[i]).ptr();
  }
  return method;
}

// Gives each argument its meaning. False where it takes Python to tell what is meant, or wrong.
bool sort(const Method& method, PyObject* const* given, size_t positional, PyObject* keywords, Arguments& sorted) {
  const auto& parameters = method.parameters;
  if (positional > parameters.size()) return false;
  sorted = method.left_out;
  for (size_t i = 0; i < positional; ++i) sorted.*parameters[i].meaning = given[i];
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    const auto is_meant = [&](const Parameter& one) { return one.name.ptr() == PyTuple_GET_ITEM(keywords, i); };
    const auto found =
        std::find_if(parameters.begin() + static_cast<Py_ssize_t>(positional), parameters.end(), is_meant);
    if (found == parameters.end()) return false;
    sorted.*found->meaning = given[positional + static_cast<size_t>(i)];
  }
  return true;
}

// Null where the call is for Python.
py::object call_if_plain(const Method& method, PyObject* const* given, size_t positional, PyObject* keywords) {
  static PyObject* const core_name = PyUnicode_InternFromString("_core");
  Arguments arguments;
  if (positional == 0 || !sort(method, given + 1, positional - 1, keywords, arguments)) return {};
  const auto core = py::reinterpret_steal<py::object>(PyObject_GetAttr(given[0], core_name));
  if (!core) PyErr_Clear();
  py::detail::make_caster<ArrayCommunicator> communicator;
  if (!core || !communicator.load(core, false)) return {};
  return run_if_plain(py::detail::cast_op<const ArrayCommunicator&>(communicator), method.kind, arguments);
}

PyObject* call(PyObject* self, PyObject* const* given, size_t count, PyObject* keywords) noexcept {
  const Method& method = *reinterpret_cast<QuickMethod*>(self)->method;
  try {
    py::object result = call_if_plain(method, given, static_cast<size_t>(PyVectorcall_NARGS(count)), keywords);
    if (result) return result.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
  return PyObject_Vectorcall(method.function.ptr(), given, count, keywords);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) noexcept {
  return instance == nullptr ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// To pickle: by its name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) noexcept { return PyObject_GetAttrString(self, "__qualname__"); }

// No part in garbage collection: as long as the class it belongs to, which is for ever.
void destroy(PyObject* self) noexcept {
  auto* quick = reinterpret_cast<QuickMethod*>(self);
  PyTypeObject* const type = Py_TYPE(self);
  delete quick->method;
  Py_XDECREF(quick->attributes);
  type->tp_free(self);
  Py_DECREF(type);
}

py::type make_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(QuickMethod, call), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(QuickMethod, attributes), READONLY, nullptr},
      {},
  };
  static PyGetSetDef properties[] = {
      {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
      {},
  };
  static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
      {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
      {Py_tp_members, members},
      {Py_tp_getset, properties},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  constexpr auto flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                         Py_TPFLAGS_DISALLOW_INSTANTIATION;
  static PyType_Spec spec{"braid._core.QuickMethod", sizeof(QuickMethod), 0, flags, slots};
  auto type = py::reinterpret_steal<py::type>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  return type;
}

py::object quick(PyTypeObject* type, const py::function& function) {
  auto method = read(function);
  auto made = py::reinterpret_steal<py::object>(type->tp_alloc(type, 0));
  if (!made) throw py::error_already_set();
  auto* const object = reinterpret_cast<QuickMethod*>(made.ptr());
  object->call = call;
  object->method = method.release();
  return py::module_::import("functools").attr("update_wrapper")(made, function);
}

}  // namespace

void bind_quick_method(py::module_& m) {
  const auto make = [type = make_type()](const py::function& function) {
    return quick(reinterpret_cast<PyTypeObject*>(type.ptr()), function);
  };
  m.def("quick", make,
        "Carries out calls of a collective's method with plain arguments; others are the method's.");
}

}  // namespace braid
