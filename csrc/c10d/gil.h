// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/python_headers.h>

#include "interpreter/interrupts.h"

namespace braid::adapter {

// Releases the GIL while in scope, if this thread holds it. Code that may wait must release the GIL: a thread that
// finishes an operation may need it for a Python callback.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

// Throws the exception that a signal handler has raised, if any. May be called with or without the GIL.
void throw_if_any(Interrupts& interrupts);

}  // namespace braid::adapter
