// SPDX-License-Identifier: Apache-2.0
// Lets a thread that waits in the core look up for signals, as Ctrl-C. Plain Python, without pybind11: the extension
// module and the torch adapter are two libraries with one pybind11 each, and share this text.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "base/interruptible_wait.h"

namespace braid {

// What a signal's handler has raised while this thread waited. It is never lost: what nobody asks for comes out of
// Python's main thread as soon as that runs Python again.
class Interrupts {
 public:
  Interrupts() = default;
  ~Interrupts() {
    if (raised_.type != nullptr) raise_later();
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // For waits, REQUIRES: the GIL is not held. Runs the handlers of signals that have come, and is true when one has
  // raised; then it stays true. One that returns harms nothing. Lives no longer than this. Handlers run in the
  // main thread alone, so that the others do not take the GIL for them.
  GiveUp give_up() {
    return [this] { return raised_.type != nullptr || look(); };
  }
  // Whether one has raised; if so, that is Python's current exception now. REQUIRES: the GIL is held.
  bool restore() {
    if (raised_.type == nullptr) return false;
    const Raised raised = std::exchange(raised_, {});
    PyErr_Restore(raised.type, raised.value, raised.traceback);
    return true;
  }
  // As restore() says. No GIL is needed.
  bool any() const { return raised_.type != nullptr; }

 private:
  struct Raised {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
  };

  bool look() {
    if (::gettid() != ::getpid() || !Py_IsInitialized()) return false;
    const PyGILState_STATE gil = PyGILState_Ensure();
    Raised before;  // a destructor may run while another exception is on its way
    PyErr_Fetch(&before.type, &before.value, &before.traceback);
    const bool raised = PyErr_CheckSignals() != 0;
    if (raised) PyErr_Fetch(&raised_.type, &raised_.value, &raised_.traceback);
    PyErr_Restore(before.type, before.value, before.traceback);
    PyGILState_Release(gil);
    return raised;
  }

  void raise_later() {
    auto kept = std::make_unique<Raised>(raised_);
    const auto raise = [](void* given) {
      const std::unique_ptr<Raised> raised(static_cast<Raised*>(given));
      PyErr_Restore(raised->type, raised->value, raised->traceback);
      return -1;
    };
    if (Py_AddPendingCall(raise, kept.get()) == 0) static_cast<void>(kept.release());
  }

  Raised raised_;
};

}  // namespace braid
