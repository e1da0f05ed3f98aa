// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <utility>

#include "base/store.h"

namespace braid {

// A store written in Python: set(key, bytes), and get(key, timeout_s) -> bytes, which raises TimeoutError. Callers of
// set() and get() do not hold the GIL; all others do. For one thread.
class PythonStore final : public Store {
 public:
  explicit PythonStore(pybind11::object store) : store_(std::move(store)) {}
  ~PythonStore() override {
    const pybind11::gil_scoped_acquire acquire;
    store_ = {};
    caught_ = nullptr;
  }

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, milliseconds timeout) override;

  // Python's own exceptions (Ctrl-C, a bug of the store) are not squeezed into a Status.
  void raise_what_was_caught() const {
    if (caught_) std::rethrow_exception(caught_);
  }

 private:
  Status failed();  // REQUIRES: called from a catch block

  pybind11::object store_;
  std::exception_ptr caught_;
};

}  // namespace braid
