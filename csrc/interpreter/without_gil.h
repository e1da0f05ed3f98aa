// SPDX-License-Identifier: Apache-2.0
// Releases the GIL around code that may wait. Plain Python, without pybind11, for the same reason as interrupts.h.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace braid {

// Releases the GIL while in scope, if this thread holds it. Code that may wait must release the GIL: a thread that
// finishes an operation may need it for a Python callback.
//
// A daemon thread may come back when the interpreter already ends. Python before 3.14 then ends the thread by
// unwinding its stack. The unwinding would meet a destructor, here or in a caller, and end the whole process. So the
// thread sleeps until the process has ended, as it does in Python 3.14.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) saved_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    if (saved_ == nullptr) return;
    try {
      PyEval_RestoreThread(saved_);
    } catch (const abi::__forced_unwind&) {
      while (true) ::pause();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

}  // namespace braid
