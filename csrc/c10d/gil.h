// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/python_headers.h>

#include "interpreter/interrupts.h"

namespace braid::adapter {

// Releases the GIL while in scope, if this thread holds it. Whatever may wait does so without the GIL: a thread
// that finishes an operation may need it for a Python callback.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

// Throws what a signal's handler has raised, if anything. With or without the GIL.
void throw_if_any(Interrupts& interrupts);

}  // namespace braid::adapter
