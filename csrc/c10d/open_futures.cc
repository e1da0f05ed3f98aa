// SPDX-License-Identifier: Apache-2.0
#include "c10d/open_futures.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "c10d/completion.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

// torch calls python_type() in the thread that gets the error, with the GIL held.
struct Interrupted final : torch::PyTorchError {
  Interrupted() : PyTorchError("braid: Ctrl-C ended the wait for a future; its operation goes on") {}

  // Takes the signal here, so that Python does not raise the same Ctrl-C again later. Only the main thread can
  // take it, and only once. All others get RuntimeError.
  PyObject* python_type() override {
    if (PyErr_CheckSignals() == 0) return PyExc_RuntimeError;
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);  // the reference to the type is never released: the caller borrows it
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return type;
  }
};

class OpenFutures {
 public:
  void add(const std::weak_ptr<Completion>& completion) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (all_.size() >= enough_) {
      std::erase_if(all_, [](const auto& one) { return one.expired(); });
      enough_ = std::max(kFew, 2 * all_.size());
    }
    all_.push_back(completion);
  }

  std::vector<std::weak_ptr<Completion>> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(all_, {});
  }

 private:
  static constexpr size_t kFew = 64;

  std::mutex mutex_;
  std::vector<std::weak_ptr<Completion>> all_;
  size_t enough_ = kFew;  // at this size, drop completions without references
};

}  // namespace

void remember_open_future(const std::weak_ptr<Completion>& completion) {
  of_this_process<OpenFutures>().add(completion);
}

void interrupt_open_futures() {
  const auto error = std::make_exception_ptr(Interrupted());
  for (const auto& open : of_this_process<OpenFutures>().take()) {
    if (const auto completion = open.lock()) completion->interrupt(error);
  }
}

}  // namespace braid::adapter
