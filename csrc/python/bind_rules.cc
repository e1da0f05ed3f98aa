// SPDX-License-Identifier: Apache-2.0
// Update rules, for tests and simulations.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <string>
#include <vector>

#include "interpreter/without_gil.h"
#include "python/array_communicator.h"
#include "python/array_memory.h"
#include "python/bind.h"
#include "python/rule_numbers.h"
#include "rules/rule.h"

namespace braid {
namespace {

RuleSpec read_rule(const std::string& text) {
  const Result<RuleSpec> spec = rule_from_text(text);
  raise_if_failed(spec.status());
  return spec.value();
}

// The arrays of a call: all of one size, and none that is written overlaps another.
class Arrays {
 public:
  float* take(const std::string& name, const py::object& given, bool is_written) {
    if (!py::isinstance<py::array>(given)) throw py::type_error(name + " is no NumPy array");
    std::span<float> floats;
    try {
      floats = floats_of(given, is_written);
    } catch (const py::value_error& error) {
      throw py::value_error(name + ": " + error.what());
    }
    if (taken_.empty()) size_ = floats.size();
    if (floats.size() != size_) {
      throw py::value_error(name + " has " + std::to_string(floats.size()) + " elements, but values has " +
                            std::to_string(size_));
    }
    taken_.push_back({name, floats.data(), is_written});
    return floats.data();
  }

  size_t size() const { return size_; }

  // `written` may be the very memory of `replaced`.
  void check_overlaps(const std::string& replaced, const std::string& written) const {
    const std::less<const float*> before;
    for (size_t i = 0; i < taken_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Taken &a = taken_[j], &b = taken_[i];
        if ((!a.is_written && !b.is_written) || size_ == 0) continue;
        if (!before(a.memory, b.memory + size_) || !before(b.memory, a.memory + size_)) continue;
        if (a.memory == b.memory && a.name == replaced && b.name == written) continue;
        throw py::value_error(a.name + " and " + b.name + " overlap");
      }
    }
  }

 private:
  struct Taken {
    std::string name;
    const float* memory;
    bool is_written;
  };
  std::vector<Taken> taken_;
  size_t size_ = 0;
};

void apply_rule(const std::string& rule, const py::dict& given_numbers, uint64_t step, float scale,
                const py::array& values, const py::array& update, const std::vector<py::array>& state,
                const py::object& backup, const py::object& result) {
  const RuleSpec spec = read_rule(rule);
  const RuleNumbers numbers = rule_numbers_of(given_numbers);
  raise_if_failed(check(spec, numbers));
  if (step == 0) throw py::value_error("step is 0, expected 1 for the first update");
  if (state.size() != static_cast<size_t>(state_vectors(spec))) {
    throw py::value_error("state has " + std::to_string(state.size()) + " arrays, but the rule \"" +
                          to_text(spec) + "\" keeps " + std::to_string(state_vectors(spec)));
  }
  if (spec.compensates == backup.is_none()) {
    throw py::value_error(spec.compensates ? "a rule that compensates needs a backup"
                                           : "a backup is given, but the rule does not compensate");
  }
  Arrays arrays;
  RuleMemory memory{.values = arrays.take("values", values, true), .update = arrays.take("update", update, false)};
  for (size_t i = 0; i < state.size(); ++i) {
    memory.state[i] = arrays.take("state[" + std::to_string(i) + "]", state[i], true);
  }
  if (!backup.is_none()) memory.backup = arrays.take("backup", backup, false);
  if (!result.is_none()) memory.result = arrays.take("result", result, true);
  arrays.check_overlaps("update", "result");
  memory.count = arrays.size();
  const WithoutGil without_gil;
  apply(spec, numbers, step, scale, memory);
}

}  // namespace

void bind_rules(py::module_& m) {
  m.def("apply_rule", &apply_rule, py::arg("rule"), py::arg("numbers"), py::arg("step"), py::arg("scale"),
        py::arg("values"), py::arg("update"), py::arg("state"), py::arg("backup") = py::none(),
        py::arg("result") = py::none(),
        "csrc/rules/rule.h, on arrays of float32. `result` may be `update`; nothing else may overlap.");
  m.def(
      "rule_states", [](const std::string& rule) { return state_vectors(read_rule(rule)); }, py::arg("rule"),
      "How many vectors of float32 a rule keeps beside the values.");
  m.def(
      "rule_text", [](const std::string& rule) { return to_text(read_rule(rule)); }, py::arg("rule"),
      "The rule as braid prints it, from any text that means the same.");
}

}  // namespace braid
