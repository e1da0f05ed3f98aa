// SPDX-License-Identifier: Apache-2.0
#include "python/python_store.h"

#include <string_view>

#include "base/limits.h"

namespace py = pybind11;

namespace braid {

Status PythonStore::failed() {
  caught_ = std::current_exception();
  return {Code::kSystem, "the store raised an exception"};
}

Status PythonStore::set(const std::string& key, const std::string& value) {
  const py::gil_scoped_acquire acquire;
  try {
    store_.attr("set")(key, py::bytes(value));
    return {};
  } catch (const std::exception&) {
    return failed();
  }
}

Result<std::string> PythonStore::get(const std::string& key, milliseconds timeout) {
  const py::gil_scoped_acquire acquire;
  const double timeout_s = static_cast<double>(timeout.count()) / 1000;
  try {
    const py::bytes value(store_.attr("get")(key, timeout_s));
    const std::string_view seen(value);
    if (seen.size() <= kMostStoreValueBytes) return std::string(seen);
    return Status(Code::kSystem,
                  too_large("the store's value of key '" + key + "'", seen.size(), kMostStoreValueBytes));
  } catch (const py::error_already_set& error) {
    // Its subclasses say more than that a key is missing.
    if (error.type().ptr() != PyExc_TimeoutError) return failed();
    return Status(Code::kTimeout, py::str(error.value()));
  } catch (const std::exception&) {
    return failed();
  }
}

}  // namespace braid
